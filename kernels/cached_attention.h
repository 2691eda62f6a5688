#pragma once

#include "attention.h"

namespace loratrain::kernels {

/// Attention of one new row per sample over what a cache has of its sample, as AttentionParams says
/// otherwise. Row t's k and v go into row first[t] + positions[t] of `keys` and `values`; its query
/// sees the rows from first[t] to there that lie in the sliding window. All of one element type;
/// sums in fp32; head_dim <= attention_max_head_dim.
struct CachedAttentionParams {
    AttentionParams of;  ///< its lse and tiles are not read
    Matrix keys;
    Matrix values;
    const std::int32_t* first;      ///< [rows]
    const std::int32_t* positions;  ///< [rows]
};

cudaError_t cached_attention(cudaStream_t stream, const CachedAttentionParams& params);

}  // namespace loratrain::kernels
