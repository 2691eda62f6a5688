#include "plan/deployments/compare_policies.h"

#include <algorithm>

#include "base/error.h"
#include "plan/replica_view.h"

namespace loratrain {

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

}  // namespace loratrain
