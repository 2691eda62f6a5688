#pragma once

#include "lora_sizes.h"
#include "lora_table.h"

namespace loratrain::kernels {

/// LoRA operators on packed rows. Formulas: src/backend/ops/lora.h.
///
/// Two implementations: tensor cores for bf16 rows in multiples of 16 bytes, plain fp32 arithmetic
/// for all others. A caller asks for the rows per tile, cuts the rows into tiles, and asks for the
/// workspace. shared_limit: bytes of shared memory that a block may have.

/// S[t, column .. column + rank) = scale drop(x_t) Aᵀ for the slot that owns row t; other columns
/// 0.
struct LoraShrinkParams {
    Matrix x;                        ///< [T, K]
    Matrix s[max_lora_targets];      ///< [T, R] per target, x's type
    Matrix again[max_lora_targets];  ///< if it has data, a copy of the target's s
    LoraTables tables;
    std::int32_t tile_rows = 0;  ///< lora_shrink_tile_rows()
    void* copies = nullptr;      ///< workspace [copy_rows, lora_copy_ld(K)] bf16
    std::int64_t copy_rows = 0;  ///< sum of ranks, each rounded up to lora_copy_row_multiple
    int shared_limit = least_shared_bytes;
};
std::int32_t lora_shrink_tile_rows(const LoraShrinkParams& params, int processors);
std::int64_t lora_shrink_workspace(const LoraShrinkParams& params);
cudaError_t lora_shrink(cudaStream_t stream, const LoraShrinkParams& params);

/// dS = scale dY B in the slot's columns, 0 in others; grad_b += dYᵀ S. For targets whose outputs
/// lie side by side.
struct LoraBackwardParams {
    Matrix dy;                                 ///< [T, sum of N]
    std::int64_t ends[max_lora_targets] = {};  ///< one past the last column of dy of each target
    Matrix s[max_lora_targets];                ///< [T, R], of the forward pass, scale included
    Matrix ds[max_lora_targets];               ///< [T, R]
    LoraTables tables;
    std::int32_t part_columns = 0;  ///< LoraBackwardCut::part_columns
    void* workspace = nullptr;
    int shared_limit = least_shared_bytes;
};
/// True if one launch takes all targets: on tensor cores, if outputs begin at multiples of 16
/// bytes.
bool lora_backward_takes_together(const LoraBackwardParams& params, std::size_t targets);
/// Reads target_count and largest_rank of the tables alone.
LoraBackwardCut lora_backward_cut(const LoraBackwardParams& params, const LoraRowCuts& cuts,
                                  int processors);
std::int64_t lora_backward_workspace(const LoraBackwardParams& params);
cudaError_t lora_backward(cudaStream_t stream, const LoraBackwardParams& params);

/// grad_a += dSᵀ drop(X), segment by segment and target by target. If `weight` is not null, the sum
/// for column k is multiplied by weight[k] + weight_offset.
struct LoraGradAParams {
    Matrix x;                     ///< [T, K]
    Matrix ds[max_lora_targets];  ///< [T, R] per target
    LoraTables tables;
    void* workspace = nullptr;
    int shared_limit = least_shared_bytes;
    const void* weight = nullptr;  ///< [K] of x's type
    float weight_offset = 0.0F;
};
std::int32_t lora_grad_a_tile_rows(const LoraGradAParams& params, const LoraRowCuts& cuts,
                                   int processors);
std::int64_t lora_grad_a_workspace(const LoraGradAParams& params);
cudaError_t lora_grad_a(cudaStream_t stream, const LoraGradAParams& params);

/// Y += S Bᵀ, or with of_a dX = sum over targets of drop'(dS A), or += with accumulate. Without
/// accumulate, rows outside all segments become 0. Y is rounded once for as many ranks of a slot as
/// fit in shared_limit: 320 on sm_90, 272 on sm_80, 160 with least_shared_bytes.
struct LoraExpandParams {
    Matrix y;  ///< Y [T, N] or dX [T, K]
    Matrix s[max_lora_targets];
    LoraTables tables;
    bool of_a = false;  ///< the factor is A and dropout applies
    bool accumulate = true;
    int shared_limit = least_shared_bytes;
};
/// `dropout`: LoraTables::dropout if of_a, else false.
std::int32_t lora_expand_tile_rows(const LoraExpandParams& params, const LoraRowCuts& cuts,
                                   bool dropout, int processors);
cudaError_t lora_expand(cudaStream_t stream, const LoraExpandParams& params);

/// The pads of one linear: b_pad [N, b_columns] = B of each slot in the slot's columns, counted
/// from b_first, else 0; a_pad [R, K] = A of each slot in the slot's rows, else 0. Values that are
/// not finite in the pads' type become 0.
struct LoraPackItem {
    void* b_pad;
    void* a_pad;
    std::int64_t b_ld;
    std::int64_t a_ld;
    std::int64_t out;      ///< N
    std::int64_t in;       ///< K
    std::int64_t columns;  ///< R
    std::int64_t b_columns;
    std::int64_t b_first;
    std::int32_t first_slot;
    std::int32_t slot_count;
};
/// The pads of many linears. Pointers are device memory.
struct LoraPackParams {
    const LoraSlotEntry* slots = nullptr;  ///< of all items; columns count within an item
    const LoraPackItem* items = nullptr;
    std::int32_t item_count = 0;
    std::int64_t most_columns = 0;  ///< largest R of an item
    std::int64_t largest = 0;       ///< largest N b_columns + K R of an item
    Element type = Element::f32;    ///< of all pads
    bool is_wide = false;           ///< lora_pack_is_wide() is true for all pads
};
/// True for pads that can be written 16 bytes at a time.
bool lora_pack_is_wide(const Matrix& b_pad, const Matrix& a_pad);
cudaError_t lora_pack(cudaStream_t stream, const LoraPackParams& params);

/// LoRA on an embedding (LoraIds), for the rows of one slot.
struct LoraIdsParams {
    Matrix s;                           ///< S or dS, [n, R]
    const std::int32_t* ids = nullptr;  ///< [n]
    const float* a = nullptr;           ///< [rank, columns]
    float* grad_a = nullptr;
    std::int64_t columns = 0;
    std::int32_t rank = 0;
    std::int32_t still = -1;
    std::int32_t column = 0;  ///< first column of the slot in S and dS
    float scale = 1.0F;
};

/// S[t, column + i] = scale a[i, ids[t]], or 0 if ids[t] is negative; other columns of S become 0.
cudaError_t lora_gather_a(cudaStream_t stream, const LoraIdsParams& params);

/// grad_a[i, ids[t]] += dS[t, column + i], unless ids[t] is `still`. One warp adds all rows of an
/// id, in order.
cudaError_t lora_scatter_a(cudaStream_t stream, const LoraIdsParams& params);

}  // namespace loratrain::kernels
