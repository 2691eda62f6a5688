#pragma once

#include "attention.h"

namespace loratrain::kernels {

/// The two implementations behind attention.h.
cudaError_t attention_forward_tensor(cudaStream_t stream, const AttentionParams& params);
cudaError_t attention_backward_tensor(cudaStream_t stream, const AttentionBackwardParams& params);
cudaError_t attention_forward_plain(cudaStream_t stream, const AttentionParams& params);
cudaError_t attention_backward_plain(cudaStream_t stream, const AttentionBackwardParams& params);

constexpr std::int32_t attention_forward_rows = 128;
constexpr std::int32_t attention_backward_rows = 64;
constexpr std::int32_t attention_plain_rows = 32;

}  // namespace loratrain::kernels
