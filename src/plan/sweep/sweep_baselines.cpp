#include "plan/sweep/sweep_baselines.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "base/dtype.h"
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

}  // namespace loratrain
