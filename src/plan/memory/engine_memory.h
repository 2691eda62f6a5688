#pragma once

#include <cstdint>

#include "plan/memory/memory_model.h"

namespace loratrain {

/// What the CUDA backend allocates for itself, in bytes, as upper bounds over all microbatches the
/// plan can lead to; all 0 on the CPU. A stage allocates all of it at its start: to allocate while
/// it trains would wait for the whole device, messages included. T = microbatch_tokens, e = bytes
/// of the compute type. What kernels take is computed by kernels/sizes.h and lora_sizes.h, for
/// their launchers and here; the rest that is shared with backend/cuda is in base/device_memory.h.
/// Most parts come in its growing_step. Not in here: the CUDA context, code of cuBLASLt, NCCL's
/// buffers for messages (session/cluster.cpp keeps room for those).

/// What NCCL takes of a GPU where a job has several ranks: an upper bound.
inline constexpr std::uint64_t nccl_bytes = std::uint64_t{512} << 20U;

/// cuBLASLt's workspace.
std::uint64_t gemm_workspace_bytes(const ReplicaView& view);

/// A and C of a GEMM whose algorithms are timed, with the rows that are timed of a class
/// (rows_alike): [T, K + R] and [T, N + R per linear] of a group of linears; [rows of a chunk,
/// H] and [rows, V] of the head. Source: GemmCublasLt; fp32 times nothing.
std::uint64_t gemm_timing_bytes(const ReplicaView& view, const StagePlan& stage);

/// Device side of the ring of small tables, and the cache of LoRA tables.
std::uint64_t table_ring_bytes(const ReplicaView& view);

/// CudaBackend::reserve_workspace, the largest of its uses: lora_shrink, lora_backward and
/// lora_grad_a of a group of linears together or one by one, and the gated ones, by the formulas of
/// kernels/lora/lora_sizes.h (the fp32 kernels use none); expert_down_backward, with
/// joins_experts(); cross_entropy of a chunk's rows, sum_squares and adamw. A pass over rows has at
/// most min(ceil(T / 128), processors x 2 / ceil(columns / 256)) tiles and one for each adapter of
/// the group.
std::uint64_t operator_scratch_bytes(const Job& job, const ReplicaView& view,
                                     const StagePlan& stage);

/// Attention: row statistics [Q, T] x 8, and three tables of tiles of 16 bytes, at most T / 32 +
/// samples each. Source: backend/cuda/attention.cpp.
std::uint64_t attention_row_bytes(const ReplicaView& view);
std::uint64_t attention_tile_bytes(const ReplicaView& view);

/// Gradients of attention's scores on an h100 or h200, bf16 with 64 < head_dim <= 128, no soft cap:
/// 8 KiB for each head and pair of tiles (kernels/sizes.h) of as many of the longest
/// samples as T holds, at most 3 GiB: parts of the heads take turns. None where the longest sample
/// needs more for the heads of one key-value head; its scores are then computed twice.
std::uint64_t attention_score_bytes(const ReplicaView& view);

/// NCCL's buffers for the sums over lanes, which it allocates itself: for the group of the stage's
/// lanes and that of a key-value head, channels x min(ranks - 1, 3) connections of 10 MiB. By its
/// sources, an upper bound: fewer channels are connected where links are slower.
std::uint64_t lane_sum_bytes(const ReplicaView& view);

struct EngineLayout {
    std::uint64_t gemm_workspace = 0;
    std::uint64_t gemm_timing = 0;
    std::uint64_t table_ring = 0;
    std::uint64_t operator_scratch = 0;
    std::uint64_t attention_rows = 0;
    std::uint64_t attention_tiles = 0;
    std::uint64_t attention_scores = 0;
    std::uint64_t lane_sums = 0;
    std::uint64_t total() const;
};
EngineLayout engine_layout(const Job& job, const ReplicaView& view, const StagePlan& stage);

}  // namespace loratrain
