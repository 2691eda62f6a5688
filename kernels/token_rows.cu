#include "token_rows.h"

#include "launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr unsigned whole_warp = 0xffffffffU;
constexpr int warp_threads = 32;
constexpr int block_warps = static_cast<int>(block_threads) / warp_threads;

/// Where T is known.
template <class T>
struct Rows {
    T* data;
    std::int64_t rows, cols, ld;

    __device__ __forceinline__ float at(std::int64_t row, std::int64_t col) const {
        float value[1];
        load<1>(data + row * ld + col, value);
        return value[0];
    }
    __device__ __forceinline__ void put(std::int64_t row, std::int64_t col, float value) const {
        const float values[1] = {value};
        store<1>(data + row * ld + col, values);
    }
};

template <class T>
Rows<T> rows_of(const Matrix& x) {
    return {pointer<T>(x), x.rows, x.cols, x.ld};
}

/// A block for each row.
template <class T>
__global__ void __launch_bounds__(block_threads)
    place_kernel(TokenTable table, const std::int32_t* ids, Rows<T> x) {
    __shared__ int place;
    const std::int64_t row = blockIdx.x;
    if (threadIdx.x == 0) place = -1;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < table.count; i += block_threads) {
        if (table.tokens[i] == ids[row]) place = i;
    }
    __syncthreads();
    if (place < 0) return;
    for (std::int64_t col = threadIdx.x; col < x.cols; col += block_threads) {
        x.put(row, col, table.scale * table.rows[place * x.cols + col]);
    }
}

/// A thread for each column of a token's row, which is added to from the first row on.
template <class T>
__global__ void __launch_bounds__(block_threads)
    place_backward_kernel(TokenTable table, const std::int32_t* ids, std::int32_t still,
                          Rows<T> dx) {
    const std::int32_t token = table.tokens[blockIdx.y];
    const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
    if (token == still || col >= dx.cols) return;
    float* gradient = table.gradient + blockIdx.y * dx.cols + col;
    float sum = *gradient;
    for (std::int64_t row = 0; row < dx.rows; ++row) {
        if (ids[row] == token) sum += table.scale * dx.at(row, col);
    }
    *gradient = sum;
}

/// A block for each row, a warp for each of its tokens.
template <class T>
__global__ void __launch_bounds__(block_threads)
    logits_kernel(TokenTable table, Rows<T> x, Rows<T> logits) {
    const std::int64_t row = blockIdx.x;
    const int lane = static_cast<int>(threadIdx.x) % warp_threads;
    for (int i = static_cast<int>(threadIdx.x) / warp_threads; i < table.count; i += block_warps) {
        float sum = 0.0F;
        for (std::int64_t col = lane; col < x.cols; col += warp_threads) {
            sum += x.at(row, col) * table.rows[i * x.cols + col];
        }
        for (int width = warp_threads / 2; width > 0; width /= 2) {
            sum += __shfl_xor_sync(whole_warp, sum, width);
        }
        if (lane == 0) logits.put(row, table.tokens[i], table.scale * sum);
    }
}

/// A block for each row.
template <class T>
__global__ void __launch_bounds__(block_threads)
    logits_to_dx_kernel(TokenTable table, Rows<T> d_logits, Rows<T> dx) {
    const std::int64_t row = blockIdx.x;
    for (std::int64_t col = threadIdx.x; col < dx.cols; col += block_threads) {
        float sum = 0.0F;
        for (int i = 0; i < table.count; ++i) {
            sum += d_logits.at(row, table.tokens[i]) * table.rows[i * dx.cols + col];
        }
        dx.put(row, col, dx.at(row, col) + table.scale * sum);
    }
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    logits_to_gradient_kernel(TokenTable table, Rows<T> x, Rows<T> d_logits) {
    const std::int32_t token = table.tokens[blockIdx.y];
    const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
    if (col >= x.cols) return;
    float* gradient = table.gradient + blockIdx.y * x.cols + col;
    float sum = *gradient;
    for (std::int64_t row = 0; row < x.rows; ++row) {
        sum += table.scale * d_logits.at(row, token) * x.at(row, col);
    }
    *gradient = sum;
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    zero_logits_kernel(TokenTable table, Rows<T> d_logits) {
    for (int i = static_cast<int>(threadIdx.x); i < table.count; i += block_threads) {
        d_logits.put(blockIdx.x, table.tokens[i], 0.0F);
    }
}

bool is_empty(const TokenTable& table, const Matrix& x) {
    return table.count == 0 || x.rows == 0 || x.cols == 0;
}

/// A block for each row.
dim3 row_blocks(const Matrix& x) {
    return {static_cast<unsigned>(x.rows), 1, 1};
}

/// Blocks for the columns of each token's row.
dim3 token_blocks(const TokenTable& table, const Matrix& x) {
    return {static_cast<unsigned>((x.cols + block_threads - 1) / block_threads),
            static_cast<unsigned>(table.count), 1};
}

}  // namespace

cudaError_t place_tokens(cudaStream_t stream, const TokenTable& table, const std::int32_t* ids,
                         const Matrix& x) {
    if (is_empty(table, x)) return cudaSuccess;
    return with_type(x.type, [&](auto element) {
        using T = decltype(element);
        place_kernel<T><<<row_blocks(x), block_threads, 0, stream>>>(table, ids, rows_of<T>(x));
        return cudaGetLastError();
    });
}

cudaError_t place_tokens_backward(cudaStream_t stream, const TokenTable& table,
                                  const std::int32_t* ids, std::int32_t still, const Matrix& dx) {
    if (is_empty(table, dx)) return cudaSuccess;
    return with_type(dx.type, [&](auto element) {
        using T = decltype(element);
        place_backward_kernel<T><<<token_blocks(table, dx), block_threads, 0, stream>>>(
            table, ids, still, rows_of<T>(dx));
        return cudaGetLastError();
    });
}

cudaError_t token_logits(cudaStream_t stream, const TokenTable& table, const Matrix& x,
                         const Matrix& logits) {
    if (is_empty(table, x)) return cudaSuccess;
    return with_type(x.type, [&](auto element) {
        using T = decltype(element);
        logits_kernel<T>
            <<<row_blocks(x), block_threads, 0, stream>>>(table, rows_of<T>(x), rows_of<T>(logits));
        return cudaGetLastError();
    });
}

cudaError_t token_logits_backward(cudaStream_t stream, const TokenTable& table, const Matrix& x,
                                  const Matrix& d_logits, const Matrix& dx) {
    if (is_empty(table, x)) return cudaSuccess;
    return with_type(x.type, [&](auto element) {
        using T = decltype(element);
        logits_to_dx_kernel<T><<<row_blocks(x), block_threads, 0, stream>>>(
            table, rows_of<T>(d_logits), rows_of<T>(dx));
        logits_to_gradient_kernel<T><<<token_blocks(table, x), block_threads, 0, stream>>>(
            table, rows_of<T>(x), rows_of<T>(d_logits));
        zero_logits_kernel<T>
            <<<row_blocks(x), block_threads, 0, stream>>>(table, rows_of<T>(d_logits));
        return cudaGetLastError();
    });
}

}  // namespace loratrain::kernels
