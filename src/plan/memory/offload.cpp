#include "plan/memory/offload.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "plan/memory/kind_memory.h"

namespace loratrain {

namespace {

constexpr std::uint64_t pinned_page = 4096;

}  // namespace

std::int32_t offloaded_layers(const ReplicaView& view, const StagePlan& stage) {
    if (view.replica.recompute != Recompute::layer) return 0;
    return std::min(stage.offloaded_layers, stage.layer_count - kept_layers(view, stage));
}

std::int32_t recomputed_layers(const ReplicaView& view, const StagePlan& stage) {
    return stage.layer_count - kept_layers(view, stage) - offloaded_layers(view, stage);
}

std::int32_t offload_buffers(const ReplicaView& view, const StagePlan& stage) {
    return std::min(most_offload_buffers, offloaded_layers(view, stage));
}

std::vector<LayerKeeping> layer_keeping(const ReplicaView& view, const StagePlan& stage) {
    const std::int32_t kept = kept_layers(view, stage);
    const std::int64_t offloaded = offloaded_layers(view, stage);
    const auto before = [&](std::int64_t end) { return end * offloaded / stage.layer_count; };
    std::vector<LayerKeeping> layers;
    std::int32_t on_device = 0;
    for (std::int32_t l = 0; l < stage.layer_count; ++l) {
        if (before(l + 1) > before(l)) {
            layers.push_back({Keeping::offloaded, static_cast<std::int32_t>(before(l))});
        } else if (on_device < kept) {
            layers.push_back({Keeping::kept, on_device++});
        } else {
            layers.push_back({Keeping::recomputed, on_device++ - kept});
        }
    }
    return layers;
}

std::uint64_t offloaded_layer_bytes(const ReplicaView& view) {
    return round_up(layer_slot_bytes(view), pinned_page);
}

std::int32_t copied_layers(const ReplicaView& view, std::size_t stage_index) {
    const StagePlan& stage = view.replica.stages[stage_index];
    const std::int32_t stay = slot_count(view, stage_index) == 1 ? offload_buffers(view, stage) : 0;
    return offloaded_layers(view, stage) - stay;
}

std::uint64_t offload_host_bytes(const ReplicaView& view, std::size_t stage_index) {
    return static_cast<std::uint64_t>(copied_layers(view, stage_index)) *
           static_cast<std::uint64_t>(slot_count(view, stage_index)) * offloaded_layer_bytes(view);
}

std::vector<ActivationPart> activation_parts(const ReplicaView& view, std::int64_t layer,
                                             std::int64_t rows) {
    std::vector<ActivationPart> parts;
    LayerActivations saved;
    for (const SavedArray& array : saved_arrays(view, view.lane_model.layer(layer), saved)) {
        const std::uint64_t bytes = array.bytes_of(rows);
        if (bytes > 0) parts.push_back({array.offset, bytes});
    }
    return parts;
}

}  // namespace loratrain
