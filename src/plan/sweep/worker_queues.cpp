#include "plan/sweep/worker_queues.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "config/start_key.h"
#include "plan/replica_view.h"
#include "plan/schedule/plan_window.h"
#include "plan/sweep/job_planner.h"

namespace loratrain {

namespace {

constexpr std::size_t most_times = 6;         // at which new shapes are looked for
constexpr std::int32_t rounds_looked_at = 6;  // from each on

/// What two stages share of a layer is counted for both.
Plan with_whole_layers(Plan plan) {
    for (StagePlan& stage : plan.replicas.front().stages) {
        stage.first_layer_adapters = {};
        stage.last_layer_adapters = {};
    }
    return plan;
}

/// Adapters that have not begun are evaluated first; once for all that start alike, in a sweep also
/// beside those that have begun.
double newcomers_seconds(const Job& job, const Plan& plan, std::span<const std::int32_t> steps_left,
                         std::span<const AdapterId> queue, std::span<const double> evaluations) {
    const auto has_begun = [&](AdapterId a) {
        return steps_left[index(a)] < plan.adapters[index(a)].total_steps;
    };
    std::set<std::optional<StartKey>> known;
    for (std::size_t i = 0; i < job.adapters.size() && job.sweep; ++i) {
        const auto a = static_cast<AdapterId>(i);
        if (has_begun(a)) known.insert(start_of(job.adapter(a), plan.model));
    }
    double seconds = 0.0;
    for (const AdapterId a : queue) {
        if (has_begun(a)) continue;
        const std::optional<StartKey> start = start_of(job.adapter(a), plan.model);
        if (start && !known.insert(start).second) continue;
        seconds += evaluations[index(a)];
    }
    return seconds;
}

/// When trials begin, at most `most_times` of the moments.
std::vector<double> begins_of(const QueueRun& run) {
    std::set<double> all;
    for (const TrialSpan& span : run.spans) all.insert(span.begin);
    const std::vector<double> moments(all.begin(), all.end());
    std::vector<double> some;
    const std::size_t count = std::min(moments.size(), most_times);
    for (std::size_t i = 0; i < count; ++i) some.push_back(moments[i * moments.size() / count]);
    return some;
}

/// Values are ranks, as the paper's. An adapter that fits nowhere trains alone.
WorkerQueues in_packed_jobs(SweepReplica replica, const TrialClasses& trials, int workers) {
    std::vector<double> values;
    for (std::size_t c = 0; c < trials.size(); ++c) {
        values.push_back(trials.loads[c].r);
        if (replica.room > 0) replica.room = std::max(replica.room, replica.classes[c].bytes);
    }
    const JobSchedule schedule =
        plan_jobs(std::span(&replica, 1), {}, trials.counts(), values, workers * replica.ranks());
    WorkerQueues result{std::vector<std::vector<AdapterId>>(static_cast<std::size_t>(workers)),
                        {},
                        {},
                        schedule.seconds};
    std::vector<std::size_t> next(trials.size(), 0);
    for (const ScheduledJob& job : schedule.jobs) {
        std::vector<AdapterId>& members = result.packed_jobs.emplace_back();
        for (std::size_t c = 0; c < trials.size(); ++c) {
            for (std::int32_t n = 0; n < job.counts[c]; ++n) {
                members.push_back(trials.members[c][next[c]++]);
            }
        }
    }
    return result;
}

/// What a worker takes for new shapes while it trains its queue.
double first_use_seconds(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                         std::span<const std::int32_t> steps_left, const QueueRun& run,
                         std::span<const AdapterId> queue, MetShapes met) {
    if (!meets_new_shapes(predicted_costs_of(only_replica(plan)).host)) return 0.0;
    Progress progress{0, {}, {}};
    for (std::size_t a = 0; a < steps_left.size(); ++a) {
        progress.steps.push_back(plan.adapters[a].total_steps - steps_left[a]);
    }
    double seconds = 0.0;
    for (const double moment : begins_of(run)) {
        progress.stopped.assign(steps_left.size(), true);
        for (std::size_t i = 0; i < queue.size(); ++i) {
            const bool trains = run.spans[i].begin <= moment && moment < run.spans[i].end;
            if (trains) progress.stopped[index(queue[i])] = false;
        }
        seconds += stall_seconds(
            plan, plan_joint_window(job, plan, datasets, progress, rounds_looked_at), met);
    }
    return seconds;
}

}  // namespace

WorkerQueues queue_for_workers(const Job& job, const Plan& plan,
                               std::span<const DatasetInfo> datasets,
                               std::span<const std::int32_t> steps_left, int workers,
                               const MetShapes& met, const AssignLimits& limits) {
    WorkerQueues result;
    result.queues.resize(static_cast<std::size_t>(workers));
    const TrialClasses trials =
        remaining_trials(trial_classes(job, plan.model, datasets), steps_left);
    if (trials.size() == 0) return result;
    const SweepReplica replica = sweep_replica(job, with_whole_layers(plan), trials);
    if (job.parallel.assignment == Assignment::plora) {
        return in_packed_jobs(replica, trials, workers);
    }
    const std::vector<std::int32_t> counts = trials.counts();
    const TrialAssignment assignment = assign_trials(replica, {}, counts, workers, limits);
    result.queue_seconds = assignment.seconds;
    std::vector<std::size_t> next(trials.size(), 0);
    std::vector<double> evaluations(steps_left.size(), 0.0);
    std::size_t longest = 0;
    for (std::size_t w = 0; w < result.queues.size(); ++w) {
        std::vector<AdapterId>& queue = result.queues[w];
        for (const std::int32_t c : assignment.queues[w]) {
            const auto of_class = static_cast<std::size_t>(c);
            queue.push_back(trials.members[of_class][next[of_class]++]);
            evaluations[index(queue.back())] = replica.classes[of_class].evaluation;
        }
        const double first = newcomers_seconds(job, plan, steps_left, queue, evaluations);
        if (assignment.seconds[w] + first <= result.seconds) continue;
        result.seconds = assignment.seconds[w] + first;
        longest = w;
    }
    const QueueRun run = simulate_sweep(replica, {}, assignment.queues[longest]);
    result.seconds +=
        first_use_seconds(job, plan, datasets, steps_left, run, result.queues[longest], met);
    for (std::vector<AdapterId>& queue : result.queues) {
        std::stable_sort(queue.begin(), queue.end(), [&](AdapterId a, AdapterId b) {
            return job.adapter(a).priority > job.adapter(b).priority;
        });
    }
    return result;
}

}  // namespace loratrain
