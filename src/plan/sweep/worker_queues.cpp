#include "plan/sweep/worker_queues.h"

#include <algorithm>

#include "plan/sweep/assign_trials.h"

namespace loratrain {

namespace {

/// What two stages share of a layer is counted for both.
Plan with_whole_layers(Plan plan) {
    for (StagePlan& stage : plan.replicas.front().stages) {
        stage.first_layer_adapters = {};
        stage.last_layer_adapters = {};
    }
    return plan;
}

}  // namespace

WorkerQueues queue_for_workers(const Job& job, const Plan& plan,
                               std::span<const DatasetInfo> datasets,
                               std::span<const std::int32_t> steps_left, int workers) {
    WorkerQueues result;
    result.queues.resize(static_cast<std::size_t>(workers));
    const TrialClasses trials =
        remaining_trials(trial_classes(job, plan.model, datasets), steps_left);
    if (trials.size() == 0) return result;
    const SweepReplica replica = sweep_replica(job, with_whole_layers(plan), trials);
    const std::vector<std::int32_t> counts = trials.counts();
    const TrialAssignment assignment = assign_trials(replica, {}, counts, workers);
    std::vector<std::size_t> next(trials.size(), 0);
    for (std::size_t w = 0; w < result.queues.size(); ++w) {
        std::vector<AdapterId>& queue = result.queues[w];
        for (const std::int32_t c : assignment.queues[w]) {
            const auto of_class = static_cast<std::size_t>(c);
            queue.push_back(trials.members[of_class][next[of_class]++]);
        }
        std::stable_sort(queue.begin(), queue.end(), [&](AdapterId a, AdapterId b) {
            return job.adapter(a).priority > job.adapter(b).priority;
        });
    }
    result.seconds = assignment.makespan();
    return result;
}

}  // namespace loratrain
