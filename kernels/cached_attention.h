#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Attention of one new row per sample over what a cache has of its sample, as AttentionParams says
/// otherwise. Row t's k and v go into row first[t] + positions[t] of `keys` and `values`; its query
/// sees the rows from first[t] to there that lie in the window. All of one element type; sums in
/// fp32; head_dim <= attention_max_head_dim.
struct CachedAttentionParams {
    Matrix q;
    Matrix k;
    Matrix v;
    Matrix o;
    Matrix keys;
    Matrix values;
    const std::int32_t* first;      ///< [rows]
    const std::int32_t* positions;  ///< [rows]
    std::int32_t heads;
    std::int32_t kv_heads;
    std::int32_t head_dim;
    float scale;
    std::int32_t window;  ///< no_attention_window: all keys before
    float soft_cap;       ///< 0: none
};

cudaError_t cached_attention(cudaStream_t stream, const CachedAttentionParams& params);

}  // namespace loratrain::kernels
