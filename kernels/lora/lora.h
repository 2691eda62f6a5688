#pragma once

#include "lora_sizes.h"
#include "lora_table.h"

namespace loratrain::kernels {

/// The LoRA operators on packed rows (backend.h has their formulas). Two implementations: tensor
/// cores for bf16 rows in multiples of 16 bytes, plain fp32 arithmetic for the rest. A caller asks
/// for the number of rows per tile, cuts the rows, and asks for the workspace. shared_limit: bytes
/// of shared memory that a block may have.

/// S[t, column .. column + rank) = scale drop(x_t) Aᵀ for the slot that owns row t, other columns
/// 0.
struct LoraShrinkParams {
    Matrix x;                        ///< [T, K]
    Matrix s[max_lora_targets];      ///< [T, R] per target, x's type
    Matrix again[max_lora_targets];  ///< gets what the target's s gets, where it has data
    LoraTables tables;
    std::int32_t tile_rows = 0;  ///< lora_shrink_tile_rows()
    void* copies = nullptr;      ///< workspace [copy_rows, lora_copy_ld(K)] bf16
    std::int64_t copy_rows = 0;  ///< ranks rounded up to lora_copy_row_multiple, summed
    int shared_limit = least_shared_bytes;
};
std::int32_t lora_shrink_tile_rows(const LoraShrinkParams& params, int processors);
std::int64_t lora_shrink_workspace(const LoraShrinkParams& params);
cudaError_t lora_shrink(cudaStream_t stream, const LoraShrinkParams& params);

/// dS = scale dY B in the slot's own columns, other columns 0, and grad_b += dYᵀ S, of targets
/// whose outputs lie side by side.
struct LoraBackwardParams {
    Matrix dy;                                 ///< [T, sum of N]
    std::int64_t ends[max_lora_targets] = {};  ///< the column of dy behind each target's last
    Matrix s[max_lora_targets];                ///< [T, R], of the forward pass, with its scale
    Matrix ds[max_lora_targets];               ///< [T, R]
    LoraTables tables;
    std::int32_t part_columns = 0;  ///< LoraBackwardCut's
    void* workspace = nullptr;
    int shared_limit = least_shared_bytes;
};
/// Several targets are taken by the tensor cores alone, which begin at multiples of 16 bytes.
bool lora_backward_takes_together(const LoraBackwardParams& params, std::size_t targets);
/// Of the tables it takes target_count and largest_rank.
LoraBackwardCut lora_backward_cut(const LoraBackwardParams& params, const LoraRowCuts& cuts,
                                  int processors);
std::int64_t lora_backward_workspace(const LoraBackwardParams& params);
cudaError_t lora_backward(cudaStream_t stream, const LoraBackwardParams& params);

/// grad_a += dSᵀ drop(X) per segment and target, what is added in column k times
/// weight[k] + weight_offset where `weight` is not null.
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

/// Y += S Bᵀ (forward) or dX = / += sum over targets of drop'(dS A); not accumulated rows of no
/// segment become 0. Y is rounded once for every so many ranks of a slot as fit in shared_limit:
/// 320 on sm_90, 272 on sm_80, 160 with the least.
struct LoraExpandParams {
    Matrix y;  ///< Y [T, N] or dX [T, K]
    Matrix s[max_lora_targets];
    LoraTables tables;
    bool of_a = false;  ///< the factor is A and dropout applies
    bool accumulate = true;
    int shared_limit = least_shared_bytes;
};
/// dropout: LoraTables::dropout, with of_a.
std::int32_t lora_expand_tile_rows(const LoraExpandParams& params, const LoraRowCuts& cuts,
                                   bool dropout, int processors);
cudaError_t lora_expand(cudaStream_t stream, const LoraExpandParams& params);

/// The pads of one linear: b_pad [N, b_columns] gets B of each slot in its columns, counted from
/// b_first on, a_pad [R, K] gets A in its rows, the rest is 0; factors that are not finite in the
/// pads' type become 0.
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
/// Of many linears at once. Pointers are device memory.
struct LoraPackParams {
    const LoraSlotEntry* slots = nullptr;  ///< of all items; columns of a slot's item are its own
    const LoraPackItem* items = nullptr;
    std::int32_t item_count = 0;
    std::int64_t most_columns = 0;  ///< R of an item
    std::int64_t largest = 0;       ///< N b_columns + K R of an item
    Element type = Element::f32;    ///< of all pads
    bool is_wide = false;           ///< lora_pack_is_wide() holds of all
};
/// Pads that can be written 16 bytes at a time.
bool lora_pack_is_wide(const Matrix& b_pad, const Matrix& a_pad);
cudaError_t lora_pack(cudaStream_t stream, const LoraPackParams& params);

}  // namespace loratrain::kernels
