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
        // Fused by hand: the compiler chooses otherwise for each N, and an element's result must
        // not depend on where a step's tensors begin and end.
#pragma unroll
        for (int j = 0; j < N; ++j) {
            const float clipped = __fmul_rn(g[j], step.clip);
            m[j] = __fmaf_rn(step.beta1, m[j], __fmul_rn(step.rest1, clipped));
            v[j] = __fmaf_rn(clipped, __fmul_rn(step.rest2, clipped), __fmul_rn(step.beta2, v[j]));
            const float root = __fmaf_rn(sqrtf(v[j]), step.root_scale, step.epsilon);
            w[j] = __fsub_rn(__fmul_rn(w[j], step.decay), __fmul_rn(step.rate, m[j]) / root);
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

}  // namespace loratrain::kernels
