#include "plan/deploy/fit_layers.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

/// Memory grows with the layers. 0 = not even one fits.
std::int32_t most_layers(const Job& job, const ReplicaView& view, std::size_t stage) {
    ReplicaPlan trial = view.replica;
    const auto fits = [&](std::int64_t layers) {
        trial.stages[stage].layer_count = static_cast<std::int32_t>(layers);
        return stage_memory(job, view.with(trial), stage).total() <= view.plan.bytes_per_rank;
    };
    return static_cast<std::int32_t>(last_that_holds(0, view.lane_model.layers + 1, fits));
}

}  // namespace

std::vector<StagePlan> fit_layers(const Job& job, const ReplicaView& view, std::int64_t tokens,
                                  Recompute recompute) {
    ReplicaPlan trial = view.replica;
    trial.microbatch_tokens = tokens;
    trial.recompute = recompute;
    std::vector<StagePlan> stages = view.replica.stages;
    std::vector<std::int32_t> room;
    std::int32_t surplus = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
        const std::int32_t most = most_layers(job, view.with(trial), s);
        if (most == 0) return {};
        const std::int32_t moved = std::max(0, stages[s].layer_count - most);
        stages[s].layer_count -= moved;
        surplus += moved;
        room.push_back(most - stages[s].layer_count);
    }
    for (std::int32_t given = 0; surplus > 0; ++given) {
        bool any = false;
        for (std::size_t s = 0; s < stages.size() && surplus > 0; ++s) {
            if (room[s] <= given) continue;
            ++stages[s].layer_count;
            --surplus;
            any = true;
        }
        if (!any) return {};
    }
    std::int32_t first = 0;
    for (StagePlan& stage : stages) {
        stage.first_layer = first;
        first += stage.layer_count;
    }
    return stages;
}

}  // namespace loratrain
