#include "attention.h"

#include <cmath>

#include "device_math.cuh"
#include "launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr int warp_lanes = 32;
constexpr int warps = 4;
constexpr int columns = attention_max_head_dim / warp_lanes;  ///< of a lane

/// What a warp has seen of its keys.
struct RunningSum {
    float acc[columns] = {};
    float largest = -INFINITY;
    float sum = 0.0F;

    /// The largest score has become `now`.
    __device__ __forceinline__ void rescale(float now) {
        const float correction = expf(largest - now);
#pragma unroll
        for (int j = 0; j < columns; ++j) acc[j] *= correction;
        sum *= correction;
        largest = now;
    }
};

template <class T>
__device__ __forceinline__ void load_head(float (&v)[columns], const T* row, int dim, int lane) {
#pragma unroll
    for (int j = 0; j < columns; ++j) {
        const int column = lane + warp_lanes * j;
        v[j] = column < dim ? to_float(row[column]) : 0.0F;
    }
}

template <class T>
__device__ __forceinline__ T* head_of(const Matrix& x, std::int64_t row, int head, int dim) {
    return static_cast<T*>(x.data) + row * x.ld + static_cast<std::int64_t>(head) * dim;
}

/// A block for each row and head; its warps take turns at the keys.
template <class T>
__global__ void __launch_bounds__(warp_lanes* warps)
    cached_attention_kernel(const __grid_constant__ CachedAttentionParams p) {
    __shared__ float of_warps[warps][attention_max_head_dim];
    __shared__ float largest_of[warps];
    __shared__ float sum_of[warps];
    const int dim = p.of.head_dim;
    const std::int64_t row = blockIdx.x / static_cast<unsigned>(p.of.heads);
    const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.of.heads));
    const int group = p.of.heads / p.of.kv_heads;
    const int kv_head = head / group;
    const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
    const int last = p.positions[row];
    const std::int64_t first = p.first[row];
    const T* new_key = head_of<T>(p.of.k, row, kv_head, dim);
    const T* new_value = head_of<T>(p.of.v, row, kv_head, dim);

    float q[columns];
    load_head(q, head_of<T>(p.of.q, row, head, dim), dim, lane);
    RunningSum own;
    for (int key = max(0, last - p.of.sliding_window + 1) + warp; key <= last; key += warps) {
        // The newest is not read from the cache: another block writes it there.
        const T* key_row = key == last ? new_key : head_of<T>(p.keys, first + key, kv_head, dim);
        const T* value_row =
            key == last ? new_value : head_of<T>(p.values, first + key, kv_head, dim);
        float k[columns];
        load_head(k, key_row, dim, lane);
        float part = 0.0F;
#pragma unroll
        for (int j = 0; j < columns; ++j) part = fmaf(q[j], k[j], part);
        float score = warp_sum(part) * p.of.scale;
        if (p.of.soft_cap != 0.0F) score = p.of.soft_cap * tanhf(score / p.of.soft_cap);
        own.rescale(fmaxf(own.largest, score));
        const float weight = expf(score - own.largest);
        own.sum += weight;
        load_head(k, value_row, dim, lane);
#pragma unroll
        for (int j = 0; j < columns; ++j) own.acc[j] = fmaf(weight, k[j], own.acc[j]);
    }
#pragma unroll
    for (int j = 0; j < columns; ++j) {
        const int column = lane + warp_lanes * j;
        if (column < dim) of_warps[warp][column] = own.acc[j];
    }
    if (lane == 0) {
        largest_of[warp] = own.largest;
        sum_of[warp] = own.sum;
    }
    __syncthreads();
    const float* sink = p.of.sinks == nullptr ? nullptr : p.of.sinks + head;
    float largest = sink == nullptr ? -INFINITY : *sink;
    for (int w = 0; w < warps; ++w) largest = fmaxf(largest, largest_of[w]);
    float sum = sink == nullptr ? 0.0F : expf(*sink - largest);
    for (int w = 0; w < warps; ++w) sum += sum_of[w] * expf(largest_of[w] - largest);
    T* o = head_of<T>(p.of.o, row, head, dim);
    for (int column = static_cast<int>(threadIdx.x); column < dim; column += warp_lanes * warps) {
        float value = 0.0F;
        for (int w = 0; w < warps; ++w) {
            value += of_warps[w][column] * expf(largest_of[w] - largest);
        }
        o[column] = from_float<T>(value / sum);
        if (head % group != 0) continue;
        head_of<T>(p.keys, first + last, kv_head, dim)[column] = new_key[column];
        head_of<T>(p.values, first + last, kv_head, dim)[column] = new_value[column];
    }
}

}  // namespace

cudaError_t cached_attention(cudaStream_t stream, const CachedAttentionParams& params) {
    const std::int64_t blocks = params.of.q.rows * params.of.heads;
    if (blocks == 0) return cudaSuccess;
    return with_type(params.of.q.type, [&](auto type) {
        using T = decltype(type);
        cached_attention_kernel<T>
            <<<static_cast<unsigned>(blocks), warp_lanes * warps, 0, stream>>>(params);
        return cudaGetLastError();
    });
}

}  // namespace loratrain::kernels
