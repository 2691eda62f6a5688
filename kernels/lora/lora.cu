#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/launch.cuh"
#include "lora.h"
#include "lora_launch.h"

namespace loratrain::kernels {

namespace {

LoraOutputs outputs_of(const LoraBackwardParams& p) {
    return {p.dy.rows, p.ends, p.tables.target_count};
}

}  // namespace

std::int32_t lora_shrink_tile_rows(const LoraShrinkParams& p, int processors) {
    return lora_tensor_fits(p.x) ? lora_tensor_shrink_rows(p.x.rows, processors) : lora_plain_rows;
}

std::int64_t lora_shrink_workspace(const LoraShrinkParams& p) {
    return lora_tensor_fits(p.x) ? lora_copy_bytes(p.copy_rows, p.x.cols) : 0;
}

cudaError_t lora_shrink(cudaStream_t stream, const LoraShrinkParams& p) {
    if (p.x.rows == 0) return cudaSuccess;
    if (lora_tensor_fits(p.x)) return lora_shrink_tensor(stream, p);
    cudaError_t error = lora_shrink_plain(stream, p);
    for (int i = 0; i < p.tables.target_count && error == cudaSuccess; ++i) {
        if (p.again[i].data != nullptr) error = copy(stream, p.again[i], p.s[i]);
    }
    return error;
}

bool lora_backward_takes_together(const LoraBackwardParams& p, std::size_t targets) {
    bool aligned = lora_tensor_fits(p.dy);
    for (std::size_t i = 0; i + 1 < targets; ++i) aligned = aligned && p.ends[i] % wide == 0;
    return aligned;
}

LoraBackwardCut lora_backward_cut(const LoraBackwardParams& p, const LoraRowCuts& cuts,
                                  int processors) {
    return lora_tensor_fits(p.dy)
               ? lora_backward_cut(outputs_of(p), p.tables.largest_rank, cuts, processors)
               : LoraBackwardCut{lora_plain_rows, 0};
}

std::int64_t lora_backward_workspace(const LoraBackwardParams& p) {
    if (!lora_tensor_fits(p.dy)) return 0;
    const LoraOutputs dy = outputs_of(p);
    const int ranks =
        pieces(p.tables.largest_rank, lora_pass_rank_multiple) * lora_pass_rank_multiple;
    return lora_backward_bytes(p.tables.tile_count, dy.parts(p.part_columns), ranks, dy.columns(),
                               dy.rows);
}

cudaError_t lora_backward(cudaStream_t stream, const LoraBackwardParams& p) {
    if (p.dy.rows == 0) return cudaSuccess;
    return lora_tensor_fits(p.dy) ? lora_backward_tensor(stream, p)
                                  : lora_backward_plain(stream, p);
}

std::int32_t lora_grad_a_tile_rows(const LoraGradAParams& p, const LoraRowCuts& cuts,
                                   int processors) {
    return lora_tensor_fits(p.x)
               ? lora_gradient_tile_rows(cuts, pieces(p.x.cols, lora_pass_columns), processors)
               : lora_plain_rows;
}

std::int64_t lora_grad_a_workspace(const LoraGradAParams& p) {
    return lora_tensor_fits(p.x)
               ? lora_grad_a_bytes(p.tables.tile_count, p.tables.largest_rank_sum, p.x.cols)
               : 0;
}

cudaError_t lora_grad_a(cudaStream_t stream, const LoraGradAParams& p) {
    if (p.x.rows == 0) return cudaSuccess;
    return lora_tensor_fits(p.x) ? lora_grad_a_tensor(stream, p) : lora_grad_a_plain(stream, p);
}

std::int32_t lora_expand_tile_rows(const LoraExpandParams& p, const LoraRowCuts& cuts, bool dropout,
                                   int processors) {
    return lora_tensor_fits(p.y) ? lora_tensor_expand_rows(cuts, p.y.cols, dropout, processors)
                                 : lora_plain_rows;
}

cudaError_t lora_expand(cudaStream_t stream, const LoraExpandParams& p) {
    if (p.y.rows == 0) return cudaSuccess;
    return lora_tensor_fits(p.y) ? lora_expand_tensor(stream, p) : lora_expand_plain(stream, p);
}

}  // namespace loratrain::kernels
