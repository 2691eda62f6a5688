#include <cmath>

#include "cross_entropy.h"
#include "launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr unsigned row_threads = 512;
constexpr unsigned row_warps = row_threads / 32;
constexpr unsigned bin_threads = 1024;

/// Largest value seen and the sum of e^(x - largest).
struct Running {
    float largest = -INFINITY;
    double sum = 0.0;
};

__device__ __forceinline__ Running merged(const Running& a, const Running& b) {
    if (a.largest == -INFINITY && a.sum == 0.0) return b;
    if (b.largest == -INFINITY && b.sum == 0.0) return a;
    const float largest = fmaxf(a.largest, b.largest);
    const auto part = [&](const Running& x) {
        return x.largest == largest ? x.sum
                                    : x.sum * static_cast<double>(expf(x.largest - largest));
    };
    return {largest, part(a) + part(b)};
}

__device__ __forceinline__ Running merged_over_block(Running mine) {
    __shared__ Running warps[row_warps];
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const Running other{__shfl_xor_sync(0xffffffffU, mine.largest, offset),
                            __shfl_xor_sync(0xffffffffU, mine.sum, offset)};
        mine = threadIdx.x % 32U & static_cast<unsigned>(offset) ? merged(other, mine)
                                                                 : merged(mine, other);
    }
    if (threadIdx.x % 32U == 0) warps[threadIdx.x / 32U] = mine;
    __syncthreads();
    Running total = warps[0];
    for (unsigned i = 1; i < row_warps; ++i) total = merged(total, warps[i]);
    return total;
}

/// Adds N values; `beaten` becomes true when one of them beats the target's logit.
template <class T, int N>
__device__ __forceinline__ void add_values(const float (&v)[N], std::int64_t first,
                                           std::int64_t target, float own, Running& running,
                                           bool& beaten) {
    float largest = running.largest;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        largest = fmaxf(largest, v[i]);
        const std::int64_t column = first + i;
        beaten = beaten || (column < target && v[i] >= own) || (column > target && v[i] > own);
    }
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += exponential<T>(v[i] - largest);
    if (largest != running.largest && running.sum != 0.0) {
        running.sum *= static_cast<double>(expf(running.largest - largest));
    }
    running.largest = largest;
    running.sum += static_cast<double>(sum);
}

template <class T, int N>
__global__ void __launch_bounds__(row_threads) row_kernel(CrossEntropyParams p) {
    const std::int64_t row = blockIdx.x;
    T* logits = static_cast<T*>(p.logits.data) + row * p.logits.ld;
    const std::int64_t target = p.targets[row];
    const float own = to_float(logits[target]);
    Running running;
    bool beaten = !(own == own);
    for (std::int64_t j = threadIdx.x * N; j < p.logits.cols; j += row_threads * N) {
        float v[N];
        load<N>(logits + j, v);
        add_values<T, N>(v, j, target, own, running, beaten);
    }
    const bool wrong = __syncthreads_or(beaten) != 0;
    const Running total = merged_over_block(running);
    if (threadIdx.x == 0) {
        p.row_losses[row] =
            static_cast<double>(total.largest) - static_cast<double>(own) + log(total.sum);
        p.row_wrong[row] = wrong ? 1 : 0;
    }
    if (!p.gradient) return;
    const float scale = p.scales[row];
    const auto factor = static_cast<float>(static_cast<double>(scale) / total.sum);
    const auto inverse = static_cast<float>(1.0 / total.sum);
    for (std::int64_t j = threadIdx.x * N; j < p.logits.cols; j += row_threads * N) {
        float v[N];
        load<N>(logits + j, v);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float e = exponential<T>(v[i] - total.largest);
            v[i] = j + i == target ? scale * (e * inverse - 1.0F) : e * factor;
        }
        store<N>(logits + j, v);
    }
}

/// One block; the thread of a bin's first row in a chunk adds up that bin's rows in order.
__global__ void __launch_bounds__(bin_threads) bin_kernel(CrossEntropyParams p) {
    __shared__ double losses[bin_threads];
    __shared__ std::int32_t wrong[bin_threads];
    __shared__ std::int32_t bins[bin_threads];
    const int mine = static_cast<int>(threadIdx.x);
    for (std::int64_t begin = 0; begin < p.logits.rows; begin += bin_threads) {
        const int count = static_cast<int>(min(p.logits.rows - begin, std::int64_t{bin_threads}));
        __syncthreads();
        if (mine < count) {
            losses[mine] = p.row_losses[begin + mine];
            wrong[mine] = p.row_wrong[begin + mine];
            bins[mine] = p.bins[begin + mine];
        }
        __syncthreads();
        if (mine >= count) continue;
        const std::int32_t bin = bins[mine];
        int earlier = 0;
        while (bins[earlier] != bin) ++earlier;
        if (earlier != mine) continue;
        double loss = p.loss_sums[bin];
        double wrong_count = p.wrong_counts[bin];
        for (int i = mine; i < count; ++i) {
            if (bins[i] != bin) continue;
            loss += losses[i];
            wrong_count += wrong[i];
        }
        p.loss_sums[bin] = loss;
        p.wrong_counts[bin] = wrong_count;
    }
}

}  // namespace

cudaError_t cross_entropy(cudaStream_t stream, const CrossEntropyParams& p) {
    if (p.logits.rows == 0 || p.logits.cols == 0) return cudaSuccess;
    const auto rows = static_cast<unsigned>(p.logits.rows);
    with_type(p.logits.type, [&](auto element) {
        using T = decltype(element);
        if (all_wide({&p.logits})) {
            row_kernel<T, wide><<<rows, row_threads, 0, stream>>>(p);
        } else {
            row_kernel<T, 1><<<rows, row_threads, 0, stream>>>(p);
        }
        return cudaSuccess;
    });
    bin_kernel<<<1, bin_threads, 0, stream>>>(p);
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
