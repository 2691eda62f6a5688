#include "plan/sweep/compare_sweep.h"

#include <algorithm>
#include <utility>

namespace loratrain {

namespace {

/// The cut of most lanes that are on one host.
std::pair<std::int32_t, std::int32_t> most_lanes(
    const SweepTask& task, const std::vector<std::pair<std::int32_t, std::int32_t>>& cuts) {
    auto chosen = cuts.front();
    for (const auto& cut : cuts) {
        if (cut.first <= task.cluster.ranks_per_node) chosen = cut;
    }
    return chosen;
}

/// Per degree, by falling ranks, the replica of most lanes with its `size`th microbatch.
std::vector<SweepReplica> sweep_degrees(const SweepTask& task, SweepShapes& shapes,
                                        std::size_t size) {
    std::vector<SweepReplica> degrees;
    for (std::int32_t ranks = 1; ranks <= task.cluster.ranks; ranks *= 2) {
        const auto cuts = shapes.cuts(ranks);
        if (cuts.empty()) continue;
        const auto [tensor, stages] = most_lanes(task, cuts);
        const std::vector<SweepReplica> sizes = shapes.replicas(tensor, stages);
        if (!sizes.empty()) degrees.push_back(sizes[std::min(size, sizes.size() - 1)]);
    }
    std::reverse(degrees.begin(), degrees.end());
    return degrees;
}

std::optional<JobSchedule> packed_jobs(const SweepTask& task, SweepShapes& shapes) {
    std::optional<JobSchedule> best;
    const std::vector<std::int32_t> counts = task.trials.counts();
    std::size_t sizes = 0;
    for (const auto& [tensor, stages] : shapes.cuts()) {
        if (stages == 1) sizes = std::max(sizes, shapes.replicas(tensor, stages).size());
    }
    for (std::size_t size = 0; size < sizes; ++size) {
        const std::vector<SweepReplica> degrees = sweep_degrees(task, shapes, size);
        if (degrees.empty()) continue;
        std::vector<double> ranks;
        for (const TrialLoad& load : task.trials.loads) ranks.push_back(load.r);
        for (const std::vector<double>& values :
             {ranks, alone_seconds_of_all(degrees.back(), task.rules)}) {
            JobSchedule schedule =
                plan_jobs(degrees, task.rules, counts, values, task.cluster.ranks);
            if (!best || schedule.seconds < best->seconds) best = std::move(schedule);
        }
    }
    return best;
}

}  // namespace

double SweepComparison::gain(double seconds) const {
    return min_gpu && seconds > 0 ? min_gpu->seconds / seconds : 0.0;
}

SweepComparison compare_sweep(const SweepTask& task, const AssignLimits& limits) {
    SweepShapes shapes(task);
    SweepComparison result;
    result.deployment = deploy_sweep(task, shapes, limits);
    result.min_gpu = min_gpu(task, shapes);
    result.max_gpu = max_gpu(task, shapes);
    result.packed_jobs = packed_jobs(task, shapes);
    for (const SweepOption& option : result.deployment.options) {
        if (option.shape.replicas == 1 && option.shape.tensor == 1) result.one_pipeline = option;
    }
    if (result.min_gpu) result.eager_peft = eager_makespan(task, result.min_gpu->replicas);
    return result;
}

}  // namespace loratrain
