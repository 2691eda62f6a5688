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
        if (p.zeroes) store<N>(p.gradients + i, g);
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

/// N neighbouring codes; N divides where they begin.
template <int N>
__device__ __forceinline__ void load_codes(const std::uint8_t* codes, std::uint8_t (&v)[N]) {
    if constexpr (N == 1) {
        v[0] = *codes;
    } else {
        const uchar4 four = *reinterpret_cast<const uchar4*>(codes);
        v[0] = four.x;
        v[1] = four.y;
        v[2] = four.z;
        v[3] = four.w;
    }
}

template <int N>
__device__ __forceinline__ void store_codes(std::uint8_t* codes, const std::uint8_t (&v)[N]) {
    if constexpr (N == 1) {
        *codes = v[0];
    } else {
        *reinterpret_cast<uchar4*>(codes) = make_uchar4(v[0], v[1], v[2], v[3]);
    }
}

/// A warp's block of parameters, N at once; without `whole` it ends with the array.
template <int N, bool whole>
__device__ __forceinline__ void step_block(const AdamW8bitParams& p, const AdamWStep& step,
                                           const float* first_map, const float* second_map,
                                           std::int64_t block) {
    constexpr int turns = adamw_8bit_block / 32 / N;
    const std::int64_t start =
        block * adamw_8bit_block + static_cast<std::int64_t>(threadIdx.x % 32) * N;
    float m[turns][N] = {};
    float v[turns][N] = {};
    const float first_scale = p.first_scales[block];
    const float second_scale = p.second_scales[block];
    float g[turns][N] = {};
    float w[turns][N];
    std::uint8_t first_codes[turns][N];
    std::uint8_t second_codes[turns][N];
    const auto at = [&](int turn) { return start + turn * 32 * N; };
    const auto is_own = [&](int turn) { return whole || at(turn) < p.step.count; };
#pragma unroll
    for (int t = 0; t < turns; ++t) {
        if (!is_own(t) || step.apply == 0) continue;
        load_codes<N>(p.first_codes + at(t), first_codes[t]);
        load_codes<N>(p.second_codes + at(t), second_codes[t]);
        load<N>(p.step.parameters + at(t), w[t]);
        load<N>(p.step.gradients + at(t), g[t]);
    }
    float first = 0.0F;
    float second = 0.0F;
    constexpr float zeros[N] = {};
#pragma unroll
    for (int t = 0; t < turns; ++t) {
        if (!is_own(t)) continue;
        if (p.step.zeroes) store<N>(p.step.gradients + at(t), zeros);
        if (step.apply == 0) continue;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            m[t][j] = first_map[first_codes[t][j]] * first_scale;
            v[t][j] = second_map[second_codes[t][j]] * second_scale;
            step_element(step, g[t][j], m[t][j], v[t][j], w[t][j]);
            first = fmaxf(first, fabsf(m[t][j]));
            second = fmaxf(second, v[t][j]);
        }
        store<N>(p.step.parameters + at(t), w[t]);
    }
    if (step.apply == 0) return;
    first = warp_largest(first);
    second = warp_largest(second);
#pragma unroll
    for (int t = 0; t < turns; ++t) {
        if (!is_own(t)) continue;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            first_codes[t][j] = nearest_code(first_map, m[t][j] / (first > 0.0F ? first : 1.0F));
            second_codes[t][j] =
                nearest_code(second_map, v[t][j] / (second > 0.0F ? second : 1.0F));
        }
        store_codes<N>(p.first_codes + at(t), first_codes[t]);
        store_codes<N>(p.second_codes + at(t), second_codes[t]);
    }
    if (threadIdx.x % 32 == 0) {
        p.first_scales[block] = first;
        p.second_scales[block] = second;
    }
}

/// Warps take blocks of parameters in turn. `aligned`: all arrays begin at multiples of what a lane
/// takes at once.
__global__ void __launch_bounds__(block_threads, 2)
    step_blocks(const __grid_constant__ AdamW8bitParams p, std::int64_t blocks, bool aligned) {
    __shared__ float first_map[256];
    __shared__ float second_map[256];
    static_assert(block_threads == 256);
    const AdamWStep step = *static_cast<const AdamWStep*>(p.step.workspace);
    first_map[threadIdx.x] = p.maps.first[threadIdx.x];
    second_map[threadIdx.x] = p.maps.second[threadIdx.x];
    __syncthreads();
    constexpr unsigned warps = block_threads / 32;
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * warps;
    for (std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
         block < blocks; block += stride) {
        if (aligned && (block + 1) * adamw_8bit_block <= p.step.count) {
            step_block<step_wide, true>(p, step, first_map, second_map, block);
        } else {
            step_block<1, false>(p, step, first_map, second_map, block);
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
    constexpr std::int64_t warps = block_threads / 32;
    const auto grid =
        static_cast<unsigned>(std::min((blocks + warps - 1) / warps, most_thread_blocks));
    const auto fours = [](const std::uint8_t* codes) {
        return reinterpret_cast<std::uintptr_t>(codes) % step_wide == 0;
    };
    const bool aligned = aligned_16(p.step.parameters) && aligned_16(p.step.gradients) &&
                         fours(p.first_codes) && fours(p.second_codes);
    step_blocks<<<grid, block_threads, 0, stream>>>(p, blocks, aligned);
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
