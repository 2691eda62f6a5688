#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/arithmetic.h"
#include "plan/memory/frozen_layouts.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Sizes of what a stage allocates. The model layer allocates with these same functions, so the
/// prediction is the allocation. Bytes unless a name says columns; e = bytes of the compute type.

/// What a slot keeps of any layer: sizes are alike in all (config/model_limits.h). kind_memory.h
/// says what that is.
std::uint64_t layer_slot_bytes(const ReplicaView& view);

/// Whether a GPU makes the products of all experts at once (ExpertRoutes::tiles): in bf16, sizes in
/// eights.
bool joins_experts(const ReplicaView& view, const ExpertSpec& experts);

/// Offsets of the parts of ExpertRoutes of a microbatch; fp32 and int32.
struct RoutesLayout {
    std::uint64_t probabilities = 0;
    std::uint64_t weights = 0;
    std::uint64_t chosen = 0;
    std::uint64_t places = 0;
    std::uint64_t rows = 0;
    std::uint64_t offsets = 0;
    /// Only with joins_experts().
    std::uint64_t tiles = 0;
    std::uint64_t counters = 0;
    std::uint64_t entries = 0;
    std::uint64_t bytes = 0;
};
RoutesLayout routes_layout(const ReplicaView& view, const ExpertSpec& experts);
/// Of the gate of a shared expert: each row goes to the one there is, by a weight of its own.
RoutesLayout shared_routes_layout(const ReplicaView& view);

/// x [T, H] between layers, with room for a message tail.
std::uint64_t boundary_bytes(const ReplicaView& view);

/// Layers of a stage whose activations a slot keeps: all, or with recomputation none.
std::int32_t kept_layers(const ReplicaView& view, const StagePlan& stage);

/// Whole slot of a stage: its kept layers, layers + 1 boundaries, the microbatch's index tables
/// and, on the last stage, the loss gradient [T, H].
std::uint64_t slot_bytes(const ReplicaView& view, const StagePlan& stage);

/// int32 index tables of a microbatch: ids, targets, positions, samples, offsets, rows, bins,
/// scales, and offsets in the rows of a shared first and last layer.
std::uint64_t table_bytes(const ReplicaView& view);

/// Slots a stage needs: max_in_flight - stage index, at least 1.
std::int32_t slot_count(const ReplicaView& view, std::size_t stage_index);

/// Gradient messages that a stage has room for each way.
inline constexpr std::int32_t gradient_buffers = 2;

/// Message tail: two doubles (sum of squares, loss sum) for every adapter that may come to be.
std::uint64_t message_tail_bytes(const Plan& plan);

/// Room, each way, for messages on their way between two stages on one host (comm/host_link.h): two
/// of the largest, where those are not very large, as most are smaller. 0 on GPUs.
std::uint64_t link_room(const ReplicaView& view);
/// The most of any replica.
std::uint64_t link_room(const Plan& plan);

/// Values that a rank at most sends, and at most receives, at a time where several replicas
/// exchange their gradients.
std::int64_t exchanged_at_once(const Plan& plan);
/// Room for both, fp32, and on GPUs for the squares of the sums; 0 with one replica.
std::uint64_t exchange_bytes(const Plan& plan);

/// Rows and vocabulary columns of one chunk of logits.
struct LogitsChunk {
    std::int64_t rows = 0;
    std::int64_t vocab = 0;  ///< head rows widened at a time when staged, else the vocabulary
};
LogitsChunk logits_chunk(const ReplicaView& view);

/// Scratch shared by all layers of a stage; sizes in bytes, 0 = not needed.
struct WorkspaceLayout {
    std::uint64_t input = 0;     ///< X|S of a linear group: [T, max (K + column_blocks R)]
    std::uint64_t gradient = 0;  ///< dY|dS of a group: [T, max(N + count R)]
    std::uint64_t residual = 0;  ///< running dx with pad: [T, H + R]
    std::uint64_t inner = 0;     ///< dX of a group, Y of a linear: [T, max K or N]
    std::uint64_t branch = 0;    ///< gradient before a branch's norm, with pad: [T, H + R]
    std::uint64_t layer = 0;     ///< activations of one layer, with recomputation
    std::uint64_t offload = 0;   ///< the same for each of offload_buffers()
    std::uint64_t kinds = 0;     ///< what kinds of sublayers alone use (KindScratch)
    /// The largest of what is widened at a time: a group's augmented matrix, a linear of all
    /// experts, a block of the head; or of a group's transposed codes.
    std::uint64_t staged = 0;
    std::uint64_t codes = 0;        ///< Plan::fp8_linears: of X or dY of a group, [T, max(K, N)]
    std::uint64_t code_scales = 0;  ///< their [T]
    std::uint64_t logits = 0;
    std::uint64_t head_rows =
        0;  ///< labelled rows, normalised rows and their gradients: 3 x [c, H]
    std::uint64_t statistics = 0;  ///< shard_statistics_bytes
    std::uint64_t messages = 0;    ///< gradient_buffers each way
    std::uint64_t links = 0;       ///< link_room of either neighbour, both ways
    std::uint64_t exchange = 0;    ///< exchange_bytes
    std::uint64_t scalars = 0;     ///< per-adapter sums and counters
    std::uint64_t total() const;
};
WorkspaceLayout workspace_layout(const ReplicaView& view, const StagePlan& stage);

/// Texts that adapters write at a time (GenerateJob, RewardsJob), at most; fewer where a job asks
/// for fewer.
inline constexpr std::int64_t texts_at_once = 64;
std::int64_t cached_texts(const Job& job);
/// Tokens that a stage has room for meanwhile: of prompts that one microbatch holds and of what is
/// written behind each; 0 where nothing is.
std::int64_t cached_tokens(const Job& job, const ReplicaView& view);
/// What the stage keeps of them: LayerCache of each layer (kind_memory.h), and behind all layers an
/// int32 for each text.
std::uint64_t text_cache_bytes(const Job& job, const ReplicaView& view, const StagePlan& stage);

/// Where the lanes of a stage add up their sums of squares (AdapterBank); 0 with one lane.
std::uint64_t lane_squares_bytes(const ReplicaView& view);
/// Statistics of a chunk of logits from every lane (Backend::shard_statistics); 0 with one lane.
std::uint64_t shard_statistics_bytes(const ReplicaView& view);

/// Parameters of an adapter that are trained, in so many layers, as many as the one with most where
/// layers differ (AdapterJob::modules); `model` is a lane's.
std::int64_t adapter_parameters(const AdapterJob& adapter, const ModelSpec& model,
                                std::int64_t layers);

/// Floats that an adapter keeps beside its tensors (AdapterForm::projects; adapter/
/// projected_factors.h), 0 of other forms; `model` is a lane's.
std::int64_t projected_floats(const AdapterJob& adapter, const ModelSpec& model);

/// Which of outer_linears count.
struct OuterLinears {
    bool head = false;
    bool embedding = false;
};
/// What a resident adapter takes in so many layers and in `with`, where those are targets: its
/// state (StateSizes) and projections. Layers that differ count as in adapter_parameters.
std::uint64_t adapter_bytes(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layers,
                            const OuterLinears& with = {});
/// On a stage, with its head and embedding, and the most of any adapter.
std::uint64_t adapter_bytes_on(const StagePlan& stage, AdapterId adapter, const Job& job,
                               const ModelSpec& model);
std::uint64_t largest_adapter_bytes(const StagePlan& stage, const Job& job, const ModelSpec& model);

/// All of a rank of a stage: the above, and engine_memory.h. The same for all its lanes: each has
/// room for as many rows of the vocabulary as the one with most.
MemoryPlan stage_memory(const Job& job, const ReplicaView& view, std::size_t stage_index);

}  // namespace loratrain
