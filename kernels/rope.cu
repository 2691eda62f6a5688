#include "launch.cuh"
#include "rope.h"

namespace loratrain::kernels {

namespace {

template <class T, int N>
__device__ __forceinline__ void rotate(T* low_half, T* high_half, const float* cosines,
                                       const float* sines) {
    float low[N];
    float high[N];
    load<N>(low_half, low);
    load<N>(high_half, high);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const float x = low[i];
        low[i] = x * cosines[i] - high[i] * sines[i];
        high[i] = high[i] * cosines[i] + x * sines[i];
    }
    store<N>(low_half, low);
    store<N>(high_half, high);
}

/// One block per row; dynamic shared memory holds the cosines and sines of its position.
template <class T, int N>
__global__ void __launch_bounds__(block_threads) rope_kernel(RopeParams p) {
    extern __shared__ float cosines[];
    const int half = static_cast<int>(p.head_dim / 2);
    float* sines = cosines + half;
    wait_for_kernel_before();
    const std::int64_t row = blockIdx.x;
    const auto position = static_cast<float>(p.positions[row]);
    for (int j = static_cast<int>(threadIdx.x); j < half; j += block_threads) {
        float sine = 0.0F;
        sincosf(__fmul_rn(position, p.inv_freq[j]), &sine, &cosines[j]);
        sines[j] = p.backward ? -sine : sine;
    }
    __syncthreads();
    T* x = static_cast<T*>(p.x.data) + row * p.x.ld;
    const int per_head = half / N;
    const int count = static_cast<int>(p.x.cols / p.head_dim) * per_head;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += block_threads) {
        const int j = i % per_head * N;
        T* head = x + i / per_head * p.head_dim;
        rotate<T, N>(head + j, head + half + j, cosines + j, sines + j);
    }
}

}  // namespace

cudaError_t rope(cudaStream_t stream, const RopeParams& p) {
    if (p.x.rows == 0 || p.x.cols == 0) return cudaSuccess;
    const auto shared = static_cast<std::size_t>(p.head_dim) * sizeof(float);
    const auto blocks = static_cast<unsigned>(p.x.rows);
    return with_type(p.x.type, [&](auto element) {
        using T = decltype(element);
        if (rows_aligned(p.x) && p.head_dim % (2 * wide) == 0) {
            return launch_early(stream, rope_kernel<T, wide>, blocks, block_threads, shared, p);
        }
        return launch_early(stream, rope_kernel<T, 1>, blocks, block_threads, shared, p);
    });
}

}  // namespace loratrain::kernels
