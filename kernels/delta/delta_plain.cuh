#pragma once

#include "delta_rows.cuh"
#include "kernels/device_math.cuh"
#include "kernels/launch.cuh"

/// Pieces of the delta rule in plain fp32, for all sizes: a block goes through the rows of a sample
/// with 32 columns of a value head's state in shared memory. Lane = column; each warp has every
/// plain_warps-th row of the state.

namespace loratrain::kernels::delta {

constexpr int plain_threads = 256;
constexpr int plain_warps = plain_threads / 32;
constexpr int plain_slice = 32;

/// What a block goes through, and where its thread stands.
struct PlainWalk {
    std::int64_t first;
    std::int64_t rows;
    int head;
    int key_head;
    int column;  ///< of the head, which may have fewer
    int warp;
    int key_dim;
    int value_dim;
    bool inside;  ///< the head has the column

    __device__ static PlainWalk of(const DeltaRuleParams& p) {
        PlainWalk walk;
        walk.first = p.rows.offsets[blockIdx.y];
        walk.rows = p.rows.offsets[blockIdx.y + 1] - walk.first;
        walk.key_dim = static_cast<int>(p.q.cols) / p.key_heads;
        walk.value_dim = static_cast<int>(p.v.cols) / p.value_heads;
        const int slices = (walk.value_dim + plain_slice - 1) / plain_slice;
        walk.head = static_cast<int>(blockIdx.x) / slices;
        walk.key_head = walk.head / (p.value_heads / p.key_heads);
        walk.column = static_cast<int>(blockIdx.x) % slices * plain_slice +
                      static_cast<int>(threadIdx.x) % 32;
        walk.warp = static_cast<int>(threadIdx.x) / 32;
        walk.inside = walk.column < walk.value_dim;
        return walk;
    }
    static dim3 grid(const DeltaRuleParams& p) {
        const auto slices = static_cast<unsigned>(pieces(p.v.cols / p.value_heads, plain_slice));
        return {slices * static_cast<unsigned>(p.value_heads),
                static_cast<unsigned>(p.rows.samples)};
    }
    __device__ std::int64_t value_at(const DeltaRuleParams& p, std::int64_t row) const {
        return (row * p.value_heads + head) * value_dim + column;
    }
};

template <class T>
__device__ __forceinline__ const T* plain_row(const Matrix& x, std::int64_t row, int head,
                                              int width) {
    return static_cast<const T*>(x.data) + row * x.ld + static_cast<std::int64_t>(head) * width;
}

/// 1 / |x|, asked by whole warps.
template <class T>
__device__ __forceinline__ float plain_length(const T* x, int width) {
    float sum = 0.0F;
    for (int d = static_cast<int>(threadIdx.x) % 32; d < width; d += 32) {
        sum += to_float(x[d]) * to_float(x[d]);
    }
    return 1.0F / sqrtf(warp_sum(sum) + delta_length_eps);
}

/// Sum over the block's warps, of each lane; `parts` [plain_warps][32] is free again behind the
/// next but one barrier.
__device__ __forceinline__ float sum_over_warps(float value, float* parts) {
    parts[threadIdx.x] = value;
    __syncthreads();
    float sum = 0.0F;
#pragma unroll
    for (int warp = 0; warp < plain_warps; ++warp) sum += parts[warp * 32 + threadIdx.x % 32U];
    return sum;
}

/// The matrix [Dk, Dv] of a value head before the chunk that begins with row `first`.
__device__ __forceinline__ std::int64_t plain_state(const DeltaRuleParams& p, std::int64_t first,
                                                    int head, int key_dim, int value_dim) {
    return ((first / delta_chunk - 1) * p.value_heads + head) * std::int64_t{key_dim} * value_dim;
}

/// The workspace of the gradients.
struct PlainWorkspace {
    float* rests;      ///< [T, Hv Dv], v - e^g Sᵀ k^
    float* d_values;   ///< [T, Hv Dv], gradients of u
    float* d_queries;  ///< [T, Hk Dk]
    float* d_keys;     ///< [T, Hk Dk]
    float* d_states;   ///< as DeltaRuleParams::states
};

/// Goes through all rows: outputs, or with `work.rests` what gradients need. Defined for fp32 and
/// bf16 in delta_plain.cu.
cudaError_t go_through_rows(cudaStream_t stream, const DeltaRuleParams& p,
                            const PlainWorkspace& work);

}  // namespace loratrain::kernels::delta
