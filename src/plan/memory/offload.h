#pragma once

#include <cstdint>
#include <vector>

#include "plan/memory/memory_model.h"

namespace loratrain {

/// Where the activations of a layer are between its forward and its backward. With
/// ReplicaPlan::recompute some layers of a stage keep theirs in the slot (StagePlan::kept_layers),
/// of some they are copied to pinned host memory after forward and back before backward, beside
/// computation (StagePlan::offloaded_layers), the others are recomputed. Results are the same to
/// the bit. "ZeRO-Offload" (Ren et al. 2021) and vDNN (Rhu et al. 2016) do so with all.
///
/// The n-th offloaded layer computes in buffer n modulo offload_buffers(): in forward it waits for
/// the copy of the one that had the buffer before it; in backward that one comes as soon as it has
/// ended. So while one is copied the layers up to the next but one compute: offloaded layers lie as
/// evenly as can be, each at the end of its share of the stage's layers, and copies have as much
/// computation beside them everywhere. The stage's last layer is one of them, as backward begins
/// with it: where a stage has one slot, its last offloaded layers, one in each buffer, are never
/// copied. Of the other layers the first keep their activations.
enum class Keeping : std::uint8_t { kept, offloaded, recomputed };

struct LayerKeeping {
    Keeping how = Keeping::kept;
    std::int32_t place = 0;  ///< among those of its kind, in order
};
/// Of all layers of the stage.
std::vector<LayerKeeping> layer_keeping(const ReplicaView& view, const StagePlan& stage);

/// None without recomputation, and no more than do not keep theirs.
std::int32_t offloaded_layers(const ReplicaView& view, const StagePlan& stage);
std::int32_t recomputed_layers(const ReplicaView& view, const StagePlan& stage);

inline constexpr std::int32_t most_offload_buffers = 2;
/// Of one layer each (LayerActivations).
std::int32_t offload_buffers(const ReplicaView& view, const StagePlan& stage);

/// A layer's part of host memory for one slot: layer_slot_bytes() in whole pages, as it is pinned.
std::uint64_t offloaded_layer_bytes(const ReplicaView& view);
/// Offloaded layers whose forward is followed by a copy to the host, the first ones; each has a
/// block for each slot.
std::int32_t copied_layers(const ReplicaView& view, std::size_t stage_index);
std::uint64_t offload_host_bytes(const ReplicaView& view, std::size_t stage_index);

/// A contiguous part of what is saved of a layer.
struct ActivationPart {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};
/// What backward reads of a layer of the model that computed so many rows.
std::vector<ActivationPart> activation_parts(const ReplicaView& view, std::int64_t layer,
                                             std::int64_t rows);

}  // namespace loratrain
