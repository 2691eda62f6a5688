#pragma once

#include "attention.h"

namespace loratrain::kernels {

/// The implementations behind attention.h.
cudaError_t attention_forward_tensor(cudaStream_t stream, const AttentionParams& params);
cudaError_t attention_backward_tensor(cudaStream_t stream, const AttentionBackwardParams& params);
cudaError_t attention_backward_hopper(cudaStream_t stream, const AttentionBackwardParams& params);
cudaError_t attention_forward_hopper(cudaStream_t stream, const AttentionParams& params);
cudaError_t attention_forward_plain(cudaStream_t stream, const AttentionParams& params);
cudaError_t attention_backward_plain(cudaStream_t stream, const AttentionBackwardParams& params);

/// row_stats = (lse in units of log 2, rowsum(dO * O)) of bf16 rows in multiples of 16 bytes.
cudaError_t attention_row_stats(cudaStream_t stream, const AttentionBackwardParams& params);

/// Whether the device runs kernels/hopper, with that much shared memory for a block.
bool runs_attention_hopper(int shared_limit);

/// The rows of the other tiles: sizes.h.
std::int32_t attention_hopper_forward_rows(std::int32_t head_dim);

#ifdef __CUDACC__

/// Whether the key is hidden that lies `distance` before the query (negative: after it).
__device__ __forceinline__ bool is_hidden(int distance, int sliding_window) {
    return static_cast<unsigned>(distance) >= static_cast<unsigned>(sliding_window);
}

/// The first tile of `rows` keys of which a query at `begin` or later sees some.
__device__ __forceinline__ int first_key_tile(int begin, int sliding_window, int rows) {
    return max(0, begin - sliding_window + 1) / rows * rows;
}

/// One past the last query that sees one of the `rows` keys from `begin`.
__device__ __forceinline__ int query_end(const AttentionTile& keys, int rows, int sliding_window) {
    const int last = keys.begin + rows - 1;
    return keys.length - last > sliding_window ? last + sliding_window : keys.length;
}

#endif

}  // namespace loratrain::kernels
