#pragma once

#include "lora.h"

namespace loratrain::kernels {

/// The implementations of lora.h on tensor cores (mma.sync m16n8k16, bf16 in, fp32 sums).

/// bf16 rows that can be read in pieces of 16 bytes.
bool lora_tensor_fits(const Matrix& x);

/// Of a tile, of `rows` in all.
std::int32_t lora_tensor_shrink_rows(std::int64_t rows, int processors);
cudaError_t lora_shrink_tensor(cudaStream_t stream, const LoraShrinkParams& params);

/// As many as let all blocks run at once, and at most so many that ranks and lengths of segments
/// even out: a block begins with its factors, while nothing else is under way.
std::int32_t lora_tensor_expand_rows(const LoraRowCuts& cuts, std::int64_t columns, bool dropout,
                                     int processors);
cudaError_t lora_expand_tensor(cudaStream_t stream, const LoraExpandParams& params);

cudaError_t lora_backward_tensor(cudaStream_t stream, const LoraBackwardParams& params);
cudaError_t lora_grad_a_tensor(cudaStream_t stream, const LoraGradAParams& params);

}  // namespace loratrain::kernels
