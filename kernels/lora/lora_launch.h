#pragma once

#include "lora.h"

namespace loratrain::kernels {

/// Implementations of lora.h: on tensor cores, and in plain arithmetic.

/// True for rows that tensor cores take (mma.sync m16n8k16, sums in fp32): bf16, readable in pieces
/// of 16 bytes.
bool lora_tensor_fits(const Matrix& x);

/// Rows of a tile of lora_shrink_tensor(); `rows`: of all tiles.
std::int32_t lora_tensor_shrink_rows(std::int64_t rows, int processors);
cudaError_t lora_shrink_tensor(cudaStream_t stream, const LoraShrinkParams& params);

/// Rows of a tile of lora_expand_tensor(): so many that all blocks run at once, but few enough that
/// differences in ranks and in lengths of segments even out. (A block begins by loading its
/// factors, while nothing else is under way.)
std::int32_t lora_tensor_expand_rows(const LoraRowCuts& cuts, std::int64_t columns, bool dropout,
                                     int processors);
cudaError_t lora_expand_tensor(cudaStream_t stream, const LoraExpandParams& params);

cudaError_t lora_backward_tensor(cudaStream_t stream, const LoraBackwardParams& params);
cudaError_t lora_grad_a_tensor(cudaStream_t stream, const LoraGradAParams& params);

/// Rows of a tile in plain arithmetic (fp32, any type and alignment).
constexpr std::int32_t lora_plain_rows = 32;

cudaError_t lora_shrink_plain(cudaStream_t stream, const LoraShrinkParams& params);
cudaError_t lora_backward_plain(cudaStream_t stream, const LoraBackwardParams& params);
cudaError_t lora_grad_a_plain(cudaStream_t stream, const LoraGradAParams& params);
cudaError_t lora_expand_plain(cudaStream_t stream, const LoraExpandParams& params);

}  // namespace loratrain::kernels
