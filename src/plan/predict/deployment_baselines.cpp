#include "plan/predict/deployment_baselines.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/deploy/make_plan.h"
#include "plan/predict/simulate.h"
#include "plan/schedule/schedule_stream.h"

namespace loratrain {

namespace {

constexpr std::size_t tried = 3;  // deployments that are simulated for a row

using Entries = std::vector<ReplicaJob>;

bool is_homogeneous(const OptionCounts& counts) {
    return std::count(counts.replicas.begin(), counts.replicas.end(), 0) + 1 ==
           std::ssize(counts.replicas);
}

/// With one adapter alone.
Job alone(const Job& job, std::size_t adapter) {
    Job one = job;
    one.adapters = {job.adapters[adapter]};
    return one;
}

class Baselines {
  public:
    Baselines(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
              Cluster cluster, std::int32_t rounds)
        : job_(job),
          model_(model),
          datasets_(datasets),
          cluster_(std::move(cluster)),
          rounds_(rounds) {
        cluster_.costs.reset();
    }

    std::vector<Baseline> run(const FoundDeployments& found) const {
        std::vector<Baseline> rows;
        rows.push_back(cluster_.ranks <= most_tried_ranks
                           ? best_alike(found.options)
                           : best("Task-Fused", job_, found, DispatchRule::uniform));
        if (job_.adapters.size() <= most_alone) {
            rows.push_back(summed("Task-Sequential", DispatchRule::uniform));
            rows.push_back(summed("LobRA-Sequential", DispatchRule::balanced));
        }
        Baseline balanced = best("balanced", job_, found, DispatchRule::balanced);
        rows.push_back({"length-based", balanced.deployment,
                        seconds(job_, balanced.deployment, DispatchRule::length)});
        rows.push_back(std::move(balanced));
        return rows;
    }

  private:
    double seconds(const Job& job, const Entries& deployment, DispatchRule rule) const {
        if (deployment.empty()) return 0.0;
        Job its = deployed(job, deployment);
        its.parallel.dispatch = rule;
        return round_rank_seconds(its, model_, datasets_, cluster_, rounds_);
    }

    /// The fastest of the first few; with dispatch uniform of those whose replicas are cut alike.
    Baseline best(std::string name, const Job& job, const FoundDeployments& found,
                  DispatchRule rule) const {
        Baseline best{std::move(name), {}, 0.0};
        std::size_t looked_at = 0;
        for (const OptionCounts& counts : found.search.solved) {
            if (looked_at == tried) break;
            if (rule == DispatchRule::uniform && !is_homogeneous(counts)) continue;
            ++looked_at;
            const Entries deployment = deployment_of(counts, found.options);
            const double taken = seconds(job, deployment, rule);
            if (taken <= 0.0 || (best.rank_seconds > 0.0 && taken >= best.rank_seconds)) continue;
            best.deployment = deployment;
            best.rank_seconds = taken;
        }
        return best;
    }

    /// Of all replicas that take every sample and divide the ranks, with 2^k stages: what is best
    /// when each gets as many samples is not what the search looks for.
    Baseline best_alike(const Entries& options) const {
        Baseline best{"Task-Fused", {}, 0.0};
        for (ReplicaJob replica : options) {
            const int ranks = replica.tensor * replica.stages;
            const bool power = (replica.stages & (replica.stages - 1)) == 0;
            if (replica.microbatch_tokens || !power || cluster_.ranks % ranks != 0) continue;
            replica.count = cluster_.ranks / ranks;
            const double taken = seconds(job_, {replica}, DispatchRule::uniform);
            if (taken <= 0.0 || (best.rank_seconds > 0.0 && taken >= best.rank_seconds)) continue;
            best.deployment = {replica};
            best.rank_seconds = taken;
        }
        return best;
    }

    Baseline summed(std::string name, DispatchRule rule) const {
        Baseline sum{std::move(name), {}, 0.0};
        for (std::size_t a = 0; a < job_.adapters.size(); ++a) {
            const Job one = alone(job_, a);
            const FoundDeployments found =
                find_deployments(one, model_, datasets_, cluster_, rounds_, 0);
            const double taken = best("", one, found, rule).rank_seconds;
            if (taken <= 0.0) return {sum.name, {}, 0.0};
            sum.rank_seconds += taken;
        }
        return sum;
    }

    const Job& job_;
    const ModelSpec& model_;
    std::span<const DatasetInfo> datasets_;
    Cluster cluster_;
    std::int32_t rounds_;
};

}  // namespace

double round_rank_seconds(const Job& job, const ModelSpec& model,
                          std::span<const DatasetInfo> datasets, const Cluster& cluster,
                          std::int32_t rounds) {
    try {
        const Plan plan = make_plan(job, model, datasets, cluster);
        const JointWindow window = plan_joint_window(job, plan, datasets, at_start(plan), rounds);
        Simulator simulator(job, plan);
        simulator.add(window);
        const auto steps = static_cast<double>(window.common().batches.size());
        const auto adapters = static_cast<double>(job.adapters.size());
        return cluster.ranks * simulator.timeline().makespan() * adapters / steps;
    } catch (const InputError&) {
        return 0.0;
    }
}

std::vector<Baseline> compare_baselines(const Job& job, const ModelSpec& model,
                                        std::span<const DatasetInfo> datasets,
                                        const Cluster& cluster, const FoundDeployments& found,
                                        std::int32_t rounds) {
    return Baselines(job, model, datasets, cluster, rounds).run(found);
}

}  // namespace loratrain
