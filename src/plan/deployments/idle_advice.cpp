#include "plan/deployments/idle_advice.h"

#include <algorithm>

#include "base/error.h"
#include "plan/deploy/make_plan.h"
#include "plan/deploy/workload.h"
#include "plan/memory/fit_memory.h"
#include "plan/replica_view.h"
#include "plan/schedule/admission_rules.h"

namespace loratrain {

namespace {

constexpr std::size_t most_deployments = 2;

class Remedies {
  public:
    Remedies(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
             const Cluster& cluster, std::int32_t rounds)
        : job_(job), plan_(plan), datasets_(datasets), cluster_(cluster), rounds_(rounds) {}

    std::vector<IdleRemedy> run(const FoundDeployments& found) {
        add_adapters();
        for (const int factor : {2, 4}) add_batches(factor);
        for (const int divisor : {2, 4}) add_stages(divisor);
        add_replicas(found);
        return std::move(remedies_);
    }

  private:
    /// In the sizes of the plan where they fit. `at_once`: adapters that it means to train
    /// together.
    void add(const std::string& change, const Job& job, const Cluster& cluster,
             std::size_t at_once = 1) {
        IdleRemedy& remedy = remedies_.emplace_back();
        remedy.change = change;
        remedy.ranks = cluster.ranks;
        try {
            Plan plan = make_plan(job, plan_.model, datasets_, cluster, &plan_);
            if (plan.first_admitted.size() < at_once) plan = with_least_memory(job, cluster);
            if (plan.first_admitted.size() < at_once) return;
            remedy.prediction = predict(job, plan, datasets_, rounds_);
        } catch (const InputError&) {
            return;
        }
    }

    /// In the smallest microbatches, beside which the most adapters train at once.
    Plan with_least_memory(Job job, const Cluster& cluster) const {
        job.parallel.microbatch_tokens =
            workload_of(job, plan_.model, cluster.backend, datasets_).longest_sample;
        if (may_use(job, Recompute::layer)) job.parallel.recompute = Recompute::layer;
        return make_plan(job, plan_.model, datasets_, cluster);
    }

    void add_adapters() {
        const std::size_t now = plan_.first_admitted.size();
        Job more = job_;
        more.schedule.max_adapters.reset();
        if (most_admitted(more) == 1) return;
        if (now == job_.adapters.size()) {
            more.adapters.insert(more.adapters.end(), job_.adapters.begin(), job_.adapters.end());
        } else if (most_admitted(job_) > now) {
            return;  // memory has no room for more
        }
        add(cat(more.adapters.size(), " adapters at once instead of ", now), more, cluster_,
            more.adapters.size());
    }

    void add_batches(int factor) {
        Job larger = job_;
        for (AdapterJob& adapter : larger.adapters) adapter.global_batch_size *= factor;
        add(cat(factor, " x global_batch_size"), larger, cluster_);
    }

    void add_stages(int divisor) {
        if (!job_.parallel.deployment.empty()) return;
        const ReplicaPlan& replica = only_replica(plan_).replica;
        const int stages = static_cast<int>(replica.stages.size()) / divisor;
        if (stages < 1) return;
        Job fewer = job_;
        fewer.parallel.pipeline_stages = stages;
        Cluster cluster = cluster_;
        cluster.ranks = stages;
        add(cat("pipeline_stages: ", stages), fewer, cluster);
    }

    void add_replicas(const FoundDeployments& found) {
        const std::vector<ReplicaJob> own = deployment_of(plan_, 0);
        std::size_t added = 0;
        for (const DeploymentPrediction& entry : found.fastest) {
            const bool several = entry.deployment.size() > 1 || entry.deployment[0].count > 1;
            if (added == most_deployments || !several || same_cuts(entry.deployment, own)) continue;
            ++added;
            if (!cluster_.costs) {
                remedies_.push_back(
                    {deployment_text(entry.deployment), cluster_.ranks, entry.prediction});
                continue;
            }
            add(cat(deployment_text(entry.deployment), " by built-in costs"),
                deployed(job_, entry.deployment), cluster_);
        }
    }

    const Job& job_;
    const Plan& plan_;
    std::span<const DatasetInfo> datasets_;
    const Cluster& cluster_;
    std::int32_t rounds_;
    std::vector<IdleRemedy> remedies_;
};

}  // namespace

std::vector<IdleRemedy> idle_remedies(const Job& job, const Plan& plan,
                                      std::span<const DatasetInfo> datasets, const Cluster& cluster,
                                      std::int32_t rounds, const Prediction& own,
                                      const FoundDeployments& found) {
    if (own.mean_idle_share() < idle_worth_advice) return {};
    return Remedies(job, plan, datasets, cluster, rounds).run(found);
}

}  // namespace loratrain
