#pragma once

#include "lora.h"

namespace loratrain::kernels {

/// The implementations of lora.h in plain fp32 arithmetic, for any type and alignment.
constexpr std::int32_t lora_plain_rows = 32;

cudaError_t lora_shrink_plain(cudaStream_t stream, const LoraShrinkParams& params);
cudaError_t lora_backward_plain(cudaStream_t stream, const LoraBackwardParams& params);
cudaError_t lora_grad_a_plain(cudaStream_t stream, const LoraGradAParams& params);
cudaError_t lora_expand_plain(cudaStream_t stream, const LoraExpandParams& params);

}  // namespace loratrain::kernels
