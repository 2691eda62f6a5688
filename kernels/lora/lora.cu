#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/launch.cuh"
#include "lora.h"
#include "lora_plain.h"
#include "lora_tensor.h"

namespace loratrain::kernels {

std::int64_t lora_copy_ld(std::int64_t k) {
    return lora_tensor_copy_ld(k);
}

std::int32_t lora_shrink_tile_rows(const LoraShrinkParams& p, int processors) {
    return lora_tensor_fits(p.x) ? lora_tensor_shrink_rows(p.x.rows, processors) : lora_plain_rows;
}

std::int64_t lora_shrink_workspace(const LoraShrinkParams& p) {
    return lora_tensor_fits(p.x) ? p.copy_rows * lora_copy_ld(p.x.cols) * 2 : 0;
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
    return lora_tensor_fits(p.dy) ? lora_tensor_backward_cut(p, cuts, processors)
                                  : LoraBackwardCut{lora_plain_rows, 0};
}

std::int64_t lora_backward_workspace(const LoraBackwardParams& p) {
    return lora_tensor_fits(p.dy) ? lora_backward_tensor_workspace(p) : 0;
}

cudaError_t lora_backward(cudaStream_t stream, const LoraBackwardParams& p) {
    if (p.dy.rows == 0) return cudaSuccess;
    return lora_tensor_fits(p.dy) ? lora_backward_tensor(stream, p)
                                  : lora_backward_plain(stream, p);
}

std::int32_t lora_grad_a_tile_rows(const LoraGradAParams& p, const LoraRowCuts& cuts,
                                   int processors) {
    return lora_tensor_fits(p.x)
               ? lora_tensor_gradient_rows(cuts, lora_grad_a_column_blocks(p), processors)
               : lora_plain_rows;
}

std::int64_t lora_grad_a_workspace(const LoraGradAParams& p) {
    return lora_tensor_fits(p.x) ? lora_grad_a_tensor_workspace(p) : 0;
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
