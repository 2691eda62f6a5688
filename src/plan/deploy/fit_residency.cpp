#include "plan/deploy/fit_residency.h"

#include <cmath>

#include "base/bisect.h"
#include "plan/memory/fit_memory.h"
#include "plan/memory/residency.h"

namespace loratrain {

std::int64_t tokens_that_hide(const CostModel& costs, std::int32_t layers, std::int32_t resident) {
    constexpr double granule = 1024.0;
    StagePlan stage;
    stage.layer_count = layers;
    stage.resident_layers = resident;
    const std::int32_t loads = streamed_layers(stage) - stream_buffers(stage);
    if (loads == 0 || costs.layer_forward.per_token <= 0.0) return 0;
    const double of_token = layers * costs.layer_forward.per_token;
    const double tokens = loads * costs.layer_transfer / of_token;
    return static_cast<std::int64_t>(granule * std::ceil(tokens / granule));
}

std::optional<std::int32_t> most_resident_layers(const Job& job, const ReplicaView& view) {
    const auto fits = [&](std::int64_t resident) {
        ReplicaPlan trial = view.replica;
        for (StagePlan& stage : trial.stages) {
            stage.resident_layers = static_cast<std::int32_t>(resident);
        }
        return fits_memory(job, view.with(trial), trial.microbatch_tokens, trial.recompute);
    };
    if (!fits(0)) return std::nullopt;
    return static_cast<std::int32_t>(last_that_holds(0, view.lane_model.layers + 1, fits));
}

}  // namespace loratrain
