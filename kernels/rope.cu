#include "rope.h"

#include <algorithm>

#include "launch.cuh"

namespace loratrain::kernels {

namespace {

template <class T, int N>
__device__ __forceinline__ void rotate(T* low_half, T* high_half, const float* cosines,
                                       const float* sines, float scale) {
    float low[N];
    float high[N];
    load<N>(low_half, low);
    load<N>(high_half, high);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const float x = low[i];
        low[i] = (x * cosines[i] - high[i] * sines[i]) * scale;
        high[i] = (high[i] * cosines[i] + x * sines[i]) * scale;
    }
    store<N>(low_half, low);
    store<N>(high_half, high);
}

/// Of 2 N columns that follow each other.
template <class T, int N>
__device__ __forceinline__ void rotate_pairs(T* x, const float* cosines, const float* sines,
                                             float scale) {
    float values[2][N];
    load<N>(x, values[0]);
    load<N>(x + N, values[1]);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        float& first = values[2 * i / N][2 * i % N];
        float& second = values[(2 * i + 1) / N][(2 * i + 1) % N];
        const float before = first;
        first = (before * cosines[i] - second * sines[i]) * scale;
        second = (second * cosines[i] + before * sines[i]) * scale;
    }
    store<N>(x, values[0]);
    store<N>(x + N, values[1]);
}

__device__ __forceinline__ float scale_at(const RopeParams& p, std::int64_t row) {
    const auto position = static_cast<float>(p.positions[row]);
    return 1.0F + p.scale_beta * logf(1.0F + floorf(__fdiv_rn(position, p.scale_period)));
}

/// Dynamic shared memory holds the cosines and sines of the block's rows.
template <class T, int N, bool interleaved>
__global__ void __launch_bounds__(block_threads) rope_kernel(RopeParams p, int block_rows) {
    extern __shared__ float cosines[];
    wait_for_kernel_before();
    const int half = static_cast<int>(p.rotary_dim / 2);
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * block_rows;
    const int rows = static_cast<int>(min(static_cast<std::int64_t>(block_rows), p.x.rows - first));
    float* sines = cosines + rows * half;
    for (int i = static_cast<int>(threadIdx.x); i < rows * half; i += block_threads) {
        const auto position = static_cast<float>(p.positions[first + i / half]);
        float sine = 0.0F;
        sincosf(__fmul_rn(position, p.inv_freq[i % half]), &sine, &cosines[i]);
        sines[i] = p.backward ? -sine : sine;
    }
    __syncthreads();
    T* x = static_cast<T*>(p.x.data) + first * p.x.ld;
    const int per_head = half / N;
    const int per_row = static_cast<int>(p.x.cols / p.head_dim) * per_head;
    for (int i = static_cast<int>(threadIdx.x); i < rows * per_row; i += block_threads) {
        const int row = i / per_row;
        const int place = i % per_row;
        const int j = place % per_head * N;
        T* head = x + row * p.x.ld + place / per_head * p.head_dim;
        const int angle = row * half + j;
        const bool scaled = place / per_head * p.head_dim < p.scaled_columns;
        const float scale = scaled ? p.length * scale_at(p, first + row) : p.length;
        if constexpr (interleaved) {
            rotate_pairs<T, N>(head + 2 * j, cosines + angle, sines + angle, scale);
        } else {
            rotate<T, N>(head + j, head + half + j, cosines + angle, sines + angle, scale);
        }
    }
}

/// As many rows as give each thread of a block something to do.
template <class T, int N>
cudaError_t launch(cudaStream_t stream, const RopeParams& p) {
    constexpr std::int64_t most_rows = 16;
    const std::int64_t per_row = p.x.cols / p.head_dim * p.rotary_dim / (2 * N);
    const std::int64_t rows =
        std::clamp<std::int64_t>(block_threads / std::max<std::int64_t>(1, per_row), 1, most_rows);
    const auto shared = static_cast<std::size_t>(rows * p.rotary_dim) * sizeof(float);
    const auto blocks = static_cast<unsigned>((p.x.rows + rows - 1) / rows);
    void (*kernel)(RopeParams, int) = rope_kernel<T, N, false>;
    if (p.interleaved) kernel = rope_kernel<T, N, true>;
    return launch_early(stream, kernel, blocks, block_threads, shared, p, static_cast<int>(rows));
}

}  // namespace

cudaError_t rope(cudaStream_t stream, const RopeParams& p) {
    if (p.x.rows == 0 || p.x.cols == 0) return cudaSuccess;
    return with_type(p.x.type, [&](auto element) {
        using T = decltype(element);
        const bool fits = p.head_dim % wide == 0 && p.rotary_dim % (2 * wide) == 0;
        return rows_aligned(p.x) && fits ? launch<T, wide>(stream, p) : launch<T, 1>(stream, p);
    });
}

}  // namespace loratrain::kernels
