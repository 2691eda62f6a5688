#include "plan/sweep/worker_queues.h"

#include <algorithm>
#include <set>
#include <utility>

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

/// Adapters that have not begun are evaluated first; trials that are the base alone share that.
double newcomers_seconds(const Job& job, const Plan& plan, std::span<const std::int32_t> steps_left,
                         std::span<const AdapterId> queue, std::span<const double> evaluations) {
    std::set<std::pair<DatasetId, LossJob>> known;
    double seconds = 0.0;
    for (const AdapterId a : queue) {
        const AdapterJob& adapter = job.adapter(a);
        if (steps_left[index(a)] < plan.adapters[index(a)].total_steps) continue;
        const bool is_base = job.sweep && adapter.init_from.empty();
        if (is_base && !known.insert({adapter.dataset, adapter.loss}).second) continue;
        seconds += evaluations[index(a)];
    }
    return seconds;
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
    std::vector<double> evaluations(steps_left.size(), 0.0);
    for (std::size_t w = 0; w < result.queues.size(); ++w) {
        std::vector<AdapterId>& queue = result.queues[w];
        for (const std::int32_t c : assignment.queues[w]) {
            const auto of_class = static_cast<std::size_t>(c);
            queue.push_back(trials.members[of_class][next[of_class]++]);
            evaluations[index(queue.back())] = replica.classes[of_class].evaluation;
        }
        const double first = newcomers_seconds(job, plan, steps_left, queue, evaluations);
        result.seconds = std::max(result.seconds, assignment.seconds[w] + first);
        std::stable_sort(queue.begin(), queue.end(), [&](AdapterId a, AdapterId b) {
            return job.adapter(a).priority > job.adapter(b).priority;
        });
    }
    return result;
}

}  // namespace loratrain
