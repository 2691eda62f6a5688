#pragma once

#include "attention.h"

namespace loratrain::kernels {

/// Implementations of attention.h: on tensor cores, in kernels/hopper, in plain arithmetic.

cudaError_t attention_forward_tensor(cudaStream_t stream, const AttentionParams& params);
cudaError_t attention_backward_tensor(cudaStream_t stream, const AttentionBackwardParams& params);
cudaError_t attention_forward_wide(cudaStream_t stream, const AttentionParams& params);
cudaError_t attention_backward_wide(cudaStream_t stream, const AttentionBackwardParams& params);
cudaError_t attention_backward_hopper(cudaStream_t stream, const AttentionBackwardParams& params);
cudaError_t attention_backward_wide_hopper(cudaStream_t stream,
                                           const AttentionBackwardParams& params);
cudaError_t attention_forward_hopper(cudaStream_t stream, const AttentionParams& params);
cudaError_t attention_forward_plain(cudaStream_t stream, const AttentionParams& params);
cudaError_t attention_backward_plain(cudaStream_t stream, const AttentionBackwardParams& params);

/// row_stats = (lse / log 2, rowsum(dO * O)), for bf16 rows in multiples of 16 bytes.
cudaError_t attention_row_stats(cudaStream_t stream, const AttentionBackwardParams& params);

/// True if the device runs the attention of kernels/hopper with `shared_limit` bytes of shared
/// memory.
bool runs_attention_hopper(int shared_limit);

/// Rows of a forward tile in kernels/hopper; the rows of all other tiles are in sizes.h.
std::int32_t attention_hopper_forward_rows(std::int32_t head_dim);

#ifdef __CUDACC__

/// True if a query does not see the key that lies `distance` before it (negative: behind it).
__device__ __forceinline__ bool is_hidden(int distance, int sliding_window) {
    return static_cast<unsigned>(distance) >= static_cast<unsigned>(sliding_window);
}

/// First row of the first tile of `rows` keys of which any query from `begin` on sees a key.
__device__ __forceinline__ int first_key_tile(int begin, int sliding_window, int rows) {
    return max(0, begin - sliding_window + 1) / rows * rows;
}

/// Takes a row's sink into `sum`, that of exp(score - base); the base becomes the larger of both.
/// Returns what the row's other sums must be multiplied by.
__device__ __forceinline__ float add_sink(float sink, float& base, float& sum) {
    const float now = fmaxf(base, sink);
    const float correction = expf(base - now);
    sum = fmaf(sum, correction, expf(sink - now));
    base = now;
    return correction;
}

/// One past the last query that sees any of the `rows` keys of a tile.
__device__ __forceinline__ int query_end(const AttentionTile& keys, int rows, int sliding_window) {
    const int last = keys.begin + rows - 1;
    return keys.length - last > sliding_window ? last + sliding_window : keys.length;
}

#endif

}  // namespace loratrain::kernels
