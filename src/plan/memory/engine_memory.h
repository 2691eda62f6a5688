#pragma once

#include <cstdint>
#include <string_view>

#include "plan/memory/memory_model.h"

namespace loratrain {

/// Memory that the CUDA backend allocates for itself, in bytes: upper bounds over all microbatches
/// that the plan can lead to. All values are 0 on the CPU. T = microbatch_tokens, e = bytes of the
/// compute type.
///
/// A stage allocates all of this memory at its start, because an allocation during training would
/// wait for the whole device, messages included. The sizes that kernels need come from
/// kernels/sizes.h and lora_sizes.h, which their launchers use too; other sizes shared with
/// backend/cuda are in base/device_memory.h. Most buffers grow in its growing_step.
///
/// Not counted here: the CUDA context, code of cuBLASLt, and NCCL's buffers for messages
/// (session/cluster.cpp keeps room for them).

/// Whether the device (Plan::device) is a GPU with kernels/hopper and most_shared_bytes.
bool is_large_hopper(std::string_view device);

/// Upper bound of the GPU memory that NCCL takes in a job of several ranks.
inline constexpr std::uint64_t nccl_bytes = std::uint64_t{512} << 20U;

/// Workspace of cuBLASLt.
std::uint64_t gemm_workspace_bytes(const ReplicaView& view);

/// Matrices A and C of a GEMM whose algorithms are timed; their rows are the rows that are timed
/// for a class of sizes (rows_alike). Of a group of linears: [T, K + R] and [T, N + R per linear].
/// Of the head: [rows of a chunk, H] and [rows, V]. 0 for fp32, which times no algorithms. Source:
/// GemmCublasLt.
std::uint64_t gemm_timing_bytes(const ReplicaView& view, const StagePlan& stage);

/// Device side of the ring of small tables, and the cache of LoRA tables.
std::uint64_t table_ring_bytes(const ReplicaView& view);

/// CudaBackend::reserve_workspace: the largest scratch of any operator of the stage:
/// - lora_shrink, lora_backward and lora_grad_a of a group of linears, together or one by one, and
///   the gated ones, by the formulas of kernels/lora/lora_sizes.h (the fp32 kernels need none);
/// - expert_down_backward, with joins_experts();
/// - delta_rule and delta_rule_backward, by the formulas of kernels/sizes.h;
/// - cross_entropy of the rows of a chunk, sum_squares and adamw.
///
/// A pass over rows has at most min(ceil(T / 128), processors x 2 / ceil(columns / 256)) tiles, and
/// one more for each adapter of the group.
std::uint64_t operator_scratch_bytes(const Job& job, const ReplicaView& view,
                                     const StagePlan& stage);

/// Attention's row statistics, [Q, T] x 8 bytes. Source: backend/cuda/attention.cpp.
std::uint64_t attention_row_bytes(const ReplicaView& view);
/// Attention's three tables of tiles: 16 bytes per tile, at most T / 32 + samples tiles each.
/// Source: backend/cuda/attention.cpp.
std::uint64_t attention_tile_bytes(const ReplicaView& view);

/// Gradients of attention's scores on an h100 or h200, in bf16 with 64 < head_dim <= 128 and
/// without soft cap. 8 KiB for each head and pair of tiles (kernels/sizes.h) of as many of the
/// longest samples as T holds; at most 3 GiB, which parts of the heads then use in turn. 0 if the
/// longest sample needs more than 3 GiB for the heads of one key-value head; the scores are then
/// computed twice.
std::uint64_t attention_score_bytes(const ReplicaView& view);

/// Buffers that NCCL allocates for sums over lanes. For the group of the stage's lanes, and for the
/// group of a key-value head: channels x min(ranks - 1, 3) connections of 10 MiB. An upper bound:
/// NCCL connects fewer channels where links are slower. Source: NCCL's code.
std::uint64_t lane_sum_bytes(const ReplicaView& view);

/// All of the above for one stage, in bytes.
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
