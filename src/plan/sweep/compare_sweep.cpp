#include "plan/sweep/compare_sweep.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "base/tensor.h"
#include "config/model_presets.h"
#include "plan/cost/built_in_costs.h"
#include "plan/cost/device.h"

namespace loratrain {

namespace {

constexpr double eager_layer = 3.0e-3;
constexpr double eager_fixed = 25e-3;
constexpr double eager_token = 106e-6;

/// The fastest replica of the cut, alone.
std::optional<BaselineTime> fastest_of(const SweepTask& task, SweepShapes& shapes,
                                       std::int32_t tensor, std::int32_t stages) {
    std::optional<BaselineTime> best;
    const std::int32_t replicas = task.cluster.ranks / (tensor * stages);
    for (const SweepReplica& replica : shapes.replicas(tensor, stages)) {
        const double seconds = alone_makespan(alone_seconds_of_all(replica, task.rules),
                                              task.trials.counts(), replicas);
        if (!best || seconds < best->seconds) best = {tensor, stages, replicas, seconds};
    }
    return best;
}

}  // namespace

double alone_makespan(std::span<const double> alone, std::span<const std::int32_t> counts,
                      std::int32_t replicas) {
    std::vector<std::size_t> order(alone.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return alone[a] > alone[b]; });
    std::priority_queue<double, std::vector<double>, std::greater<>> free;
    for (std::int32_t g = 0; g < replicas; ++g) free.push(0.0);
    double last = 0.0;
    for (const std::size_t c : order) {
        for (std::int32_t n = 0; n < counts[c]; ++n) {
            const double end = free.top() + alone[c];
            free.pop();
            free.push(end);
            last = std::max(last, end);
        }
    }
    return last;
}

std::vector<double> alone_seconds_of_all(const SweepReplica& replica, const SweepRules& rules) {
    std::vector<double> seconds;
    seconds.reserve(replica.classes.size());
    for (std::int32_t c = 0; c < static_cast<std::int32_t>(replica.classes.size()); ++c) {
        seconds.push_back(sweep_seconds(replica, rules, std::span(&c, 1)));
    }
    return seconds;
}

std::optional<BaselineTime> min_gpu(const SweepTask& task, SweepShapes& shapes) {
    std::optional<BaselineTime> best;
    for (std::int32_t ranks = 1; ranks <= task.cluster.ranks && !best; ++ranks) {
        for (const auto& [tensor, stages] : shapes.cuts(ranks)) {
            const bool streams =
                std::ranges::any_of(shapes.replicas(tensor, stages), &SweepReplica::streams);
            const auto found = fastest_of(task, shapes, tensor, stages);
            if (found && !streams && (!best || found->seconds < best->seconds)) best = found;
        }
    }
    return best;
}

std::optional<BaselineTime> max_gpu(const SweepTask& task, SweepShapes& shapes) {
    const auto cuts = shapes.cuts(task.cluster.ranks);
    for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
        const auto found = fastest_of(task, shapes, cut->first, cut->second);
        if (found) return found;
    }
    return std::nullopt;
}

std::optional<double> eager_step_seconds(const ModelSpec& model, const Cluster& cluster,
                                         double tokens) {
    if (cluster.backend != BackendKind::cuda) return std::nullopt;
    const auto parameters = static_cast<double>(matmul_parameters(model));
    const double scale =
        parameters / static_cast<double>(matmul_parameters(*model_preset("llama-3.1-8b")));
    const auto token_of = [&](std::string_view device) {
        return built_in_costs(model, DType::bf16, device).layer_forward.per_token;
    };
    const double slower = token_of(device_of(cluster)) / token_of("h200");
    return std::max(eager_layer * static_cast<double>(model.layers),
                    scale * (eager_fixed + eager_token * slower * tokens));
}

std::optional<double> eager_makespan(const SweepTask& task, std::int32_t replicas) {
    std::vector<double> alone;
    for (const TrialLoad& load : task.trials.loads) {
        const auto step = eager_step_seconds(task.model, task.cluster, load.tokens);
        if (!step) return std::nullopt;
        alone.push_back(load.steps * *step);
    }
    return alone_makespan(alone, task.trials.counts(), replicas);
}

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
