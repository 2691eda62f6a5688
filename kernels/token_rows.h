#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Rows of an embedding that an adapter has in place of the base's (src/backend/ops/token_rows.h),
/// for the rows of one segment and some of its tokens.

/// Tokens are a kernel's argument.
constexpr int most_tokens_at_once = 512;

struct TokenTable {
    std::int32_t tokens[most_tokens_at_once];
    std::int32_t count = 0;
    const float* rows = nullptr;  ///< [count, H]
    float* gradient = nullptr;    ///< [count, H]
    float scale = 1.0F;
};

/// x_t = scale rows_i where ids[t] is tokens[i]. x: [n, H], ids: [n].
cudaError_t place_tokens(cudaStream_t stream, const TokenTable& table, const std::int32_t* ids,
                         const Matrix& x);

/// gradient_i += scale dx_t, row by row, for tokens but `still`.
cudaError_t place_tokens_backward(cudaStream_t stream, const TokenTable& table,
                                  const std::int32_t* ids, std::int32_t still, const Matrix& dx);

/// logits[t, tokens[i]] = scale x_t rows_iᵀ.
cudaError_t token_logits(cudaStream_t stream, const TokenTable& table, const Matrix& x,
                         const Matrix& logits);

/// dx_t += scale d_logits[t, tokens[i]] rows_i; gradient_i += scale d_logits[t, tokens[i]] x_t, row
/// by row; then d_logits[t, tokens[i]] = 0.
cudaError_t token_logits_backward(cudaStream_t stream, const TokenTable& table, const Matrix& x,
                                  const Matrix& d_logits, const Matrix& dx);

}  // namespace loratrain::kernels
