#include "plan/deployments/compare_deployments.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "plan/deploy/workload.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

std::optional<Prediction> predicted_own(const Job& job, const Plan& plan,
                                        std::span<const DatasetInfo> datasets, Cluster cluster,
                                        const Prediction& own, std::int32_t rounds) {
    if (!cluster.costs) return own;
    cluster.costs.reset();
    try {
        return predict(job, make_plan(job, plan.model, datasets, cluster), datasets, rounds);
    } catch (const InputError&) {
        return std::nullopt;
    }
}

}  // namespace

DeploymentComparison compare_deployments(const Job& job, const Plan& plan,
                                         std::span<const DatasetInfo> datasets,
                                         const Cluster& cluster, FoundDeployments found,
                                         const Prediction& own, std::int32_t rounds,
                                         std::size_t most) {
    DeploymentComparison comparison;
    const std::vector<ReplicaJob> cuts = deployment_of(plan, 0);
    comparison.predictions.push_back(
        {cuts, predicted_own(job, plan, datasets, cluster, own, rounds)});
    comparison.found = std::move(found);
    for (const DeploymentPrediction& entry : comparison.found.fastest) {
        if (comparison.predictions.size() > most) break;
        if (!same_cuts(entry.deployment, cuts)) comparison.predictions.push_back(entry);
    }
    return comparison;
}

namespace {

std::optional<Prediction> published(const Job& job, Plan plan,
                                    std::span<const DatasetInfo> datasets, std::int32_t rounds) {
    if (job.schedule.policy != SchedulePolicy::mlora) return {};
    bool differs = false;
    for (ReplicaPlan& replica : plan.replicas) {
        const auto stages = static_cast<std::int32_t>(replica.stages.size());
        differs = differs || replica.max_in_flight != stages;
        replica.max_in_flight = stages;
    }
    if (!differs) return {};
    return predict(job, plan, datasets, rounds);
}

}  // namespace

std::vector<PolicyPrediction> compare_policies(const Job& job, const ModelSpec& model,
                                               std::span<const DatasetInfo> datasets,
                                               const Cluster& cluster, std::int32_t rounds,
                                               const Prediction& own) {
    std::vector<PolicyPrediction> results;
    Job other = job;
    for (const SchedulePolicy policy : {SchedulePolicy::sequential, SchedulePolicy::one_f_one_b,
                                        SchedulePolicy::mlora, SchedulePolicy::balanced}) {
        other.schedule.policy = policy;
        results.push_back({policy, std::nullopt});
        const bool is_own = policy == job.schedule.policy;
        if (is_own) results.back().prediction = own;
        if (is_own && policy != SchedulePolicy::mlora) continue;
        try {
            const Plan plan = make_plan(other, model, datasets, cluster);
            if (!is_own) results.back().prediction = predict(other, plan, datasets, rounds);
            results.back().as_published = published(other, plan, datasets, rounds);
        } catch (const InputError&) {
            continue;
        }
    }
    return results;
}

namespace {

constexpr std::size_t tried = 3;  // deployments that are simulated for a row

using Entries = std::vector<ReplicaJob>;

bool is_homogeneous(const OptionCounts& counts) {
    return std::count(counts.replicas.begin(), counts.replicas.end(), 0) + 1 ==
           std::ssize(counts.replicas);
}

/// What a round of a job takes all ranks together that takes so many seconds.
double rank_seconds_of_round(const Plan& plan, double seconds) {
    std::int32_t steps = 0;
    for (const AdapterPlan& adapter : plan.adapters) steps = std::max(steps, adapter.total_steps);
    return steps > 0 ? static_cast<double>(plan.memory.size()) * seconds / steps : 0.0;
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
        Job open = job;
        open.parallel.deployment.clear();
        for (const AdapterPlan& adapter :
             plan_before_deployment(open, model, datasets, cluster_).adapters) {
            steps_.push_back(adapter.total_steps);
        }
    }

    std::vector<Baseline> run(const FoundDeployments& found) {
        for (const DeploymentPrediction& entry : found.fastest) take(entry, found.rounds);
        std::vector<Baseline> rows;
        Baseline balanced = best("balanced", job_, found, DispatchRule::balanced);
        Baseline fused;
        if (cluster_.ranks > most_tried_ranks) {
            fused = best("Task-Fused", job_, found, DispatchRule::uniform);
        }
        // Few ranks, or none of those that the search has solved fits.
        if (fused.rank_seconds <= 0.0) fused = best_alike(found.options);
        rows.push_back(std::move(fused));
        take_if_faster(job_, rows.back().deployment, DispatchRule::balanced, balanced);
        if (job_.adapters.size() <= most_alone) {
            rows.push_back(summed("Task-Sequential", DispatchRule::uniform, balanced));
            rows.push_back(summed("LobRA-Sequential", DispatchRule::balanced, balanced));
        }
        rows.push_back({"length-based", balanced.deployment,
                        seconds(job_, balanced.deployment, DispatchRule::length)});
        rows.push_back(std::move(balanced));
        return rows;
    }

  private:
    /// A deployment of the job, planned once, and what it was seen to take.
    struct Known {
        std::optional<Plan> plan;  ///< none = it does not fit
        std::map<DispatchRule, double> rank_seconds = {};
    };

    void take(const DeploymentPrediction& entry, std::int32_t rounds) {
        Known& known = known_[deployment_text(entry.deployment)];
        known.plan = entry.planned.plan;
        if (rounds != rounds_) return;
        known.rank_seconds[job_.parallel.dispatch] =
            rank_seconds_of_round(*known.plan, entry.prediction->seconds);
    }

    /// 0 where it does not fit.
    double seconds(const Job& job, const Entries& deployment, DispatchRule rule) {
        if (deployment.empty()) return 0.0;
        Job its = deployed(job, deployment);
        its.parallel.dispatch = rule;
        if (&job != &job_) return round_rank_seconds(its, model_, datasets_, cluster_, rounds_);
        const auto [known, fresh] = known_.try_emplace(deployment_text(deployment));
        if (fresh) known->second.plan = plan_or_none(deployed(job, deployment));
        const std::optional<Plan>& plan = known->second.plan;
        if (!plan || (rule == DispatchRule::uniform && !all_hold_all(*plan))) return 0.0;
        const auto [taken, first] = known->second.rank_seconds.try_emplace(rule, 0.0);
        if (first) {
            taken->second =
                rank_seconds_of_round(*plan, predict(its, *plan, datasets_, rounds_).seconds);
        }
        return taken->second;
    }

    /// Deployments are planned alike whatever is dealt.
    std::optional<Plan> plan_or_none(Job job) const {
        job.parallel.dispatch = DispatchRule::balanced;
        try {
            return make_plan(job, model_, datasets_, cluster_);
        } catch (const InputError&) {
            return std::nullopt;
        }
    }

    bool all_hold_all(const Plan& plan) const {
        const std::int64_t longest =
            workload_of(job_, model_, cluster_.backend, datasets_).longest_sample;
        return std::ranges::all_of(plan.replicas, [&](const ReplicaPlan& replica) {
            return replica.microbatch_tokens >= longest;
        });
    }

    /// The fastest of the first few that fit, and of those that were predicted; with dispatch
    /// uniform of those whose replicas are cut alike and take every sample.
    Baseline best(std::string name, const Job& job, const FoundDeployments& found,
                  DispatchRule rule) {
        Baseline best{std::move(name), {}, 0.0};
        const bool uniform = rule == DispatchRule::uniform;
        if (!uniform) {
            for (const DeploymentPrediction& entry : found.fastest) {
                take_if_faster(job, entry.deployment, rule, best);
            }
        }
        std::size_t fitting = 0;
        for (const OptionCounts& counts : found.search.solved) {
            if (fitting == tried || (!uniform && !found.fastest.empty())) break;
            const Entries deployment = deployment_of(counts, found.options);
            if (uniform && (!is_homogeneous(counts) || deployment.front().microbatch_tokens)) {
                continue;
            }
            if (take_if_faster(job, deployment, rule, best)) ++fitting;
        }
        return best;
    }

    /// False where it does not fit.
    bool take_if_faster(const Job& job, const Entries& deployment, DispatchRule rule,
                        Baseline& best) {
        const double taken = seconds(job, deployment, rule);
        if (taken <= 0.0) return false;
        if (best.rank_seconds > 0.0 && taken >= best.rank_seconds) return true;
        best.deployment = deployment;
        best.rank_seconds = taken;
        return true;
    }

    /// Of all replicas that take every sample and divide the ranks, with 2^k stages, or where none
    /// of these fit with any: what is best when each gets as many samples is not what the search
    /// looks for.
    Baseline best_alike(const Entries& options) {
        Baseline best{"Task-Fused", {}, 0.0};
        for (const bool powers : {true, false}) {
            for (ReplicaJob replica : options) {
                const int ranks = replica.tensor * replica.stages;
                const bool power = (replica.stages & (replica.stages - 1)) == 0;
                const bool divides = cluster_.ranks % ranks == 0;
                if (replica.microbatch_tokens || power != powers || !divides) continue;
                replica.count = cluster_.ranks / ranks;
                take_if_faster(job_, {replica}, DispatchRule::uniform, best);
            }
            if (best.rank_seconds > 0.0) break;
        }
        return best;
    }

    /// Deployments of one adapter are tried for all of them `together` too.
    Baseline summed(std::string name, DispatchRule rule, Baseline& together) {
        Baseline sum{std::move(name), {}, 0.0};
        for (std::size_t a = 0; a < job_.adapters.size(); ++a) {
            const Job one = alone(job_, a);
            const FoundDeployments found =
                find_deployments(one, model_, datasets_, cluster_, {rounds_, 0});
            const Baseline own = best("", one, found, rule);
            if (own.rank_seconds <= 0.0) return {sum.name, {}, 0.0};
            take_if_faster(job_, own.deployment, DispatchRule::balanced, together);
            sum.rank_seconds +=
                own.rank_seconds * steps_[a] / *std::max_element(steps_.begin(), steps_.end());
        }
        return sum;
    }

    const Job& job_;
    const ModelSpec& model_;
    std::span<const DatasetInfo> datasets_;
    Cluster cluster_;
    std::int32_t rounds_;
    std::vector<std::int32_t> steps_;     ///< of each adapter
    std::map<std::string, Known> known_;  ///< by deployment
};

}  // namespace

double round_rank_seconds(const Job& job, const ModelSpec& model,
                          std::span<const DatasetInfo> datasets, const Cluster& cluster,
                          std::int32_t rounds) {
    try {
        const Plan plan = make_plan(job, model, datasets, cluster);
        return rank_seconds_of_round(plan, predict(job, plan, datasets, rounds).seconds);
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
