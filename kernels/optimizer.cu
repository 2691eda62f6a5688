#include <algorithm>
#include <cmath>

#include "launch.cuh"
#include "optimizer.h"

namespace loratrain::kernels {

namespace {

/// Parameters of a thread: 16 bytes of each array, so that a warp's accesses lie side by side.
constexpr int step_wide = 4;

/// What one step does to every parameter.
struct AdamWStep {
    float clip, decay, beta1, beta2, rest1, rest2, rate, root_scale, epsilon;
    int apply;
};
static_assert(sizeof(AdamWStep) <= adamw_workspace_bytes);

__global__ void decide_step(AdamWParams p) {
    const double norm = sqrt(*p.grad_sumsq);
    AdamWStep step{};
    if (isfinite(norm)) {
        if (p.counts) ++*p.applied_steps;
        const auto t = static_cast<double>(*p.applied_steps);
        step.clip = static_cast<float>(
            p.max_grad_norm > 0.0 ? fmin(1.0, p.max_grad_norm / (norm + 1e-6)) : 1.0);
        step.decay = static_cast<float>(1.0 - p.learning_rate * p.weight_decay);
        step.beta1 = static_cast<float>(p.beta1);
        step.beta2 = static_cast<float>(p.beta2);
        step.rest1 = static_cast<float>(1.0 - p.beta1);
        step.rest2 = static_cast<float>(1.0 - p.beta2);
        step.rate = static_cast<float>(p.learning_rate / (1.0 - pow(p.beta1, t)));
        step.root_scale = static_cast<float>(1.0 / sqrt(1.0 - pow(p.beta2, t)));
        step.epsilon = static_cast<float>(p.epsilon);
        step.apply = 1;
    } else if (p.counts) {
        ++*p.skipped_steps;
    }
    *static_cast<AdamWStep*>(p.workspace) = step;
}

/// Fused by hand: the compiler chooses otherwise for each N, and an element's result must not
/// depend on where a step's tensors begin and end.
__device__ __forceinline__ void step_element(const AdamWStep& step, float g, float& m, float& v,
                                             float& w) {
    const float clipped = __fmul_rn(g, step.clip);
    m = __fmaf_rn(step.beta1, m, __fmul_rn(step.rest1, clipped));
    v = __fmaf_rn(clipped, __fmul_rn(step.rest2, clipped), __fmul_rn(step.beta2, v));
    const float root = __fmaf_rn(sqrtf(v), step.root_scale, step.epsilon);
    w = __fsub_rn(__fmul_rn(w, step.decay), __fmul_rn(step.rate, m) / root);
}

template <int N>
struct AdamWBody {
    AdamWParams p;
    __device__ void operator()(std::int64_t, std::int64_t i) const {
        const AdamWStep step = *static_cast<const AdamWStep*>(p.workspace);
        float g[N];
        float m[N];
        float v[N];
        float w[N];
        load<N>(p.gradients + i, g);
        load<N>(p.first_moments + i, m);
        load<N>(p.second_moments + i, v);
        load<N>(p.parameters + i, w);
#pragma unroll
        for (int j = 0; j < N; ++j) {
            step_element(step, g[j], m[j], v[j], w[j]);
            g[j] = 0.0F;
        }
        store<N>(p.gradients + i, g);
        if (step.apply == 0) return;
        store<N>(p.first_moments + i, m);
        store<N>(p.second_moments + i, v);
        store<N>(p.parameters + i, w);
    }
};

template <int N>
cudaError_t launch_adamw(cudaStream_t stream, AdamWParams p, std::int64_t first,
                         std::int64_t count) {
    p.parameters += first;
    p.gradients += first;
    p.first_moments += first;
    p.second_moments += first;
    return launch_elements<N>(stream, 1, count, AdamWBody<N>{p});
}

/// Of the number nearest to x in an ascending map; of two, the lower.
__device__ std::uint8_t nearest_code(const float* map, float x) {
    int below = 0;
#pragma unroll
    for (int half = 128; half > 0; half /= 2) {
        if (map[below + half] <= x) below += half;
    }
    if (below == 255) return 255;
    return static_cast<std::uint8_t>(map[below + 1] - x < x - map[below] ? below + 1 : below);
}

__device__ float warp_largest(float value) {
#pragma unroll
    for (int other = 16; other > 0; other /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, other));
    }
    return value;
}

/// Thread blocks take blocks of parameters in turn, a thread one parameter of each.
__global__ void __launch_bounds__(adamw_8bit_block)
    step_blocks(const __grid_constant__ AdamW8bitParams p, std::int64_t blocks) {
    __shared__ float first_map[256];
    __shared__ float second_map[256];
    __shared__ float largest[2][adamw_8bit_block / 32];
    const AdamWStep step = *static_cast<const AdamWStep*>(p.step.workspace);
    first_map[threadIdx.x] = p.maps.first[threadIdx.x];
    second_map[threadIdx.x] = p.maps.second[threadIdx.x];
    for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const std::int64_t i = block * adamw_8bit_block + threadIdx.x;
        const bool own = i < p.step.count;
        float m = 0.0F;
        float v = 0.0F;
        __syncthreads();
        if (own && step.apply != 0) {
            m = first_map[p.first_codes[i]] * p.first_scales[block];
            v = second_map[p.second_codes[i]] * p.second_scales[block];
            float w = p.step.parameters[i];
            step_element(step, p.step.gradients[i], m, v, w);
            p.step.parameters[i] = w;
        }
        if (own) p.step.gradients[i] = 0.0F;
        if (step.apply == 0) continue;
        const float of_warp[2] = {warp_largest(fabsf(m)), warp_largest(v)};
        if (threadIdx.x % 32 == 0) {
            largest[0][threadIdx.x / 32] = of_warp[0];
            largest[1][threadIdx.x / 32] = of_warp[1];
        }
        __syncthreads();
        float first = 0.0F;
        float second = 0.0F;
#pragma unroll
        for (int warp = 0; warp < adamw_8bit_block / 32; ++warp) {
            first = fmaxf(first, largest[0][warp]);
            second = fmaxf(second, largest[1][warp]);
        }
        if (own) {
            p.first_codes[i] = nearest_code(first_map, m / (first > 0.0F ? first : 1.0F));
            p.second_codes[i] = nearest_code(second_map, v / (second > 0.0F ? second : 1.0F));
        }
        if (threadIdx.x == 0) {
            p.first_scales[block] = first;
            p.second_scales[block] = second;
        }
    }
}

__global__ void __launch_bounds__(block_threads)
    sum_parts(const float* values, std::int64_t count, double* parts) {
    __shared__ double scratch[block_threads / 32];
    const std::int64_t size = (count + gridDim.x - 1) / gridDim.x;
    const std::int64_t begin = blockIdx.x * size;
    const std::int64_t end = min(count, begin + size);
    double sum = 0.0;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += block_threads) {
        const double value = values[i];
        sum += value * value;
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(block_threads) add_parts(const double* parts, double* result) {
    __shared__ double scratch[block_threads / 32];
    double sum = 0.0;
    for (unsigned i = threadIdx.x; i < sum_squares_parts; i += block_threads) sum += parts[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) *result = sum;
}

}  // namespace

cudaError_t sum_squares(cudaStream_t stream, const float* values, std::int64_t count,
                        double* result, double* workspace) {
    sum_parts<<<sum_squares_parts, block_threads, 0, stream>>>(values, count, workspace);
    add_parts<<<1, block_threads, 0, stream>>>(workspace, result);
    return cudaGetLastError();
}

cudaError_t adamw(cudaStream_t stream, const AdamWParams& p) {
    decide_step<<<1, 1, 0, stream>>>(p);
    const bool vectors = aligned_16(p.parameters) && aligned_16(p.gradients) &&
                         aligned_16(p.first_moments) && aligned_16(p.second_moments);
    const std::int64_t body = vectors ? p.count / step_wide * step_wide : 0;
    const cudaError_t status = launch_adamw<step_wide>(stream, p, 0, body);
    if (status != cudaSuccess) return status;
    const cudaError_t rest = launch_adamw<1>(stream, p, body, p.count - body);
    return rest != cudaSuccess ? rest : cudaGetLastError();
}

cudaError_t adamw_8bit(cudaStream_t stream, const AdamW8bitParams& p) {
    decide_step<<<1, 1, 0, stream>>>(p.step);
    const std::int64_t blocks = (p.step.count + adamw_8bit_block - 1) / adamw_8bit_block;
    if (blocks == 0) return cudaGetLastError();
    constexpr std::int64_t most_thread_blocks = 2048;
    const auto grid = static_cast<unsigned>(std::min(blocks, most_thread_blocks));
    step_blocks<<<grid, adamw_8bit_block, 0, stream>>>(p, blocks);
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
