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

/// Bytes that a slot keeps of a layer (kind_memory.h says of what): the same for all layers, since
/// layers of one model have equal sizes (config/model_limits.h).
std::uint64_t layer_slot_bytes(const ReplicaView& view);

/// Whether a GPU makes the products of all experts in one launch (ExpertRoutes::tiles): in bf16, if
/// sizes are multiples of 8.
bool joins_experts(const ReplicaView& view, const ExpertSpec& experts);

/// Byte offsets of the arrays of a microbatch's ExpertRoutes, which are fp32 and int32.
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
/// The same for the shared expert: each row goes to this one expert, with a weight of its own.
RoutesLayout shared_routes_layout(const ReplicaView& view);

/// x [T, H] between layers, with room for a message tail.
std::uint64_t boundary_bytes(const ReplicaView& view);

/// Number of a stage's layers whose activations a slot keeps: all, or with recomputation
/// StagePlan::kept_layers.
std::int32_t kept_layers(const ReplicaView& view, const StagePlan& stage);

/// Whole slot of a stage: its kept layers, layers + 1 boundaries, the microbatch's index tables
/// and, on the last stage, the loss gradient [T, H].
std::uint64_t slot_bytes(const ReplicaView& view, const StagePlan& stage);

/// int32 index tables of a microbatch: ids, targets, positions, samples, offsets, rows, bins,
/// scales, and offsets in the rows of a shared first and last layer.
std::uint64_t table_bytes(const ReplicaView& view);

/// Slots a stage needs: max_in_flight - stage index, at least 1.
std::int32_t slot_count(const ReplicaView& view, std::size_t stage_index);

/// Number of gradient messages in each direction that a stage has room for.
inline constexpr std::int32_t gradient_buffers = 2;

/// Message tail: two doubles (sum of squares, loss sum) for each of Plan::adapter_capacity.
std::uint64_t message_tail_bytes(const Plan& plan);

/// Bytes in each direction for messages on their way between two stages on one host
/// (comm/host_link.h): two of the largest messages, but at least 64 KiB and at most 32 MiB. 0 on
/// GPUs.
std::uint64_t link_room(const ReplicaView& view);
/// The largest link_room() of any replica.
std::uint64_t link_room(const Plan& plan);

/// Most gradients that a rank sends at a time, and most that it receives, when several replicas sum
/// gradients.
std::int64_t exchanged_at_once(const Plan& plan);
/// Bytes for both directions in fp32, and on GPUs for the squares of the sums; 0 with one replica.
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
    std::uint64_t offload = 0;   ///< activations of one layer for each of offload_buffers()
    std::uint64_t kinds = 0;     ///< scratch of single kinds of sublayers (KindScratch)
    /// Weights are widened to the compute type part by part: the largest part of a group's
    /// augmented matrix, a linear of all experts, a block of the head and a group's transposed
    /// codes.
    std::uint64_t staged = 0;
    std::uint64_t codes = 0;        ///< Plan::fp8_linears: of X or dY of a group, [T, max(K, N)]
    std::uint64_t code_scales = 0;  ///< scales of `codes`, [T]
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

/// Room for the texts that adapters write at a time (GenerateJob, RewardsJob).
struct TextRoom {
    std::int64_t texts = 0;
    /// Of all texts together: one microbatch of prompts for every few_texts texts, and the longest
    /// answer for each text.
    std::int64_t tokens = 0;
};
/// As ReplicaPlan::texts_at_once says. No room if adapters write no texts.
TextRoom text_room(const Job& job, const ReplicaView& view);
/// Bytes that the stage keeps for texts: LayerCache of each layer (kind_memory.h), and behind all
/// layers an int32 and a ChosenToken for each text.
std::uint64_t text_cache_bytes(const Job& job, const ReplicaView& view, const StagePlan& stage);

/// Bytes in which the lanes of a stage add up sums of squares (AdapterBank); 0 with one lane.
std::uint64_t lane_squares_bytes(const ReplicaView& view);
/// Bytes of the statistics of a chunk of logits from every lane (Backend::shard_statistics); 0 with
/// one lane.
std::uint64_t shard_statistics_bytes(const ReplicaView& view);

/// Number of trained parameters of an adapter in `layers` layers. If layers differ
/// (AdapterJob::modules), each counts as the one with most parameters. `model`: of a lane.
std::int64_t adapter_parameters(const AdapterJob& adapter, const ModelSpec& model,
                                std::int64_t layers);

/// Number of floats that an adapter whose form projects (AdapterForm::projects) keeps beside its
/// tensors (adapter/projected_factors.h); 0 for other forms. `model`: of a lane.
std::int64_t projected_floats(const AdapterJob& adapter, const ModelSpec& model);

/// Which of outer_linears to count.
struct OuterLinears {
    bool head = false;
    bool embedding = false;
};
/// Bytes of a resident adapter in `layers` layers, and in those of `with` that are its targets: its
/// state (StateSizes) and projections. Layers that differ count as in adapter_parameters().
std::uint64_t adapter_bytes(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layers,
                            const OuterLinears& with = {});
/// adapter_bytes() on a stage, with its head and embedding; and the largest of any adapter.
std::uint64_t adapter_bytes_on(const StagePlan& stage, AdapterId adapter, const Job& job,
                               const ModelSpec& model);
std::uint64_t largest_adapter_bytes(const StagePlan& stage, const Job& job, const ModelSpec& model);

/// Memory of a rank of a stage: all the parts above, and engine_memory.h. The same for all lanes of
/// the stage: each has room for the largest number of vocabulary rows of a lane.
MemoryPlan stage_memory(const Job& job, const ReplicaView& view, std::size_t stage_index);

}  // namespace loratrain
