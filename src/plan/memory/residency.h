#pragma once

#include <array>
#include <cstdint>

#include "plan/memory/memory_model.h"

namespace loratrain {

/// Layers whose frozen weights stream: their linears lie in host memory, packed, or in the memory
/// of the rank that owns them (layer_owners.h), and are copied to one of a few buffers of the stage
/// for each use, while the layers before compute. Norms and biases, the embedding and the head
/// stay. LoRA pads are no part of what is copied.

/// StagePlan::resident_layers as the job says; auto counts as all, shared among several as none.
std::int32_t resident_layers(const Job& job);
/// The stages with it, before their ranks are known: of shared ones the most that one has.
std::vector<StagePlan> with_residency(std::vector<StagePlan> stages, const Job& job);

/// Whether layers of a stage may stream, however many there are.
bool may_stream(const ReplicaPlan& replica);
/// Of the stage's.
std::int32_t streamed_layers(const StagePlan& stage);
/// Of a stage with owners, the layers that its own rank owns.
std::int32_t owned_layers(const StagePlan& stage);
/// Whether a layer, counted from the stage's first, is one of them: they lie as evenly as can be,
/// each behind the resident ones of its share, so that transfers spread; of a stage with owners,
/// all that others own.
bool is_streamed(const StagePlan& stage, std::int32_t layer);

/// While one layer computes, the next ones come: two would do where all take equally long.
inline constexpr std::int32_t most_stream_buffers = 3;
std::int32_t stream_buffers(const StagePlan& stage);

/// What a buffer holds of a group of linears, and what of that the host has: `rows` rows of
/// `row_bytes`, packed there, `pitch` bytes apart in the buffer. Offsets in bytes.
struct StreamedGroup {
    std::uint64_t in_buffer = 0;
    std::uint64_t in_host = 0;
    std::uint64_t rows = 0;
    std::uint64_t row_bytes = 0;
    std::uint64_t pitch = 0;
};
struct StreamedLayer {
    std::array<StreamedGroup, linear_group_count> groups;
    std::uint64_t buffer_bytes = 0;
    std::uint64_t host_bytes = 0;  ///< that are copied
};
StreamedLayer streamed_layer(const ReplicaView& view);

/// Of whole pages, as host memory is pinned.
std::uint64_t host_layer_bytes(const StreamedLayer& layer);

}  // namespace loratrain
