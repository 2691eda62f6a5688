#include "delta_launch.h"
#include "delta_plain.cuh"

namespace loratrain::kernels::delta {

namespace {

/// Block: a slice of a value head of a sample.
template <class T>
__global__ void __launch_bounds__(plain_threads)
    rows_kernel(const __grid_constant__ DeltaRuleParams p, PlainWorkspace work) {
    extern __shared__ float state[];  // [Dk, plain_slice]
    __shared__ float old_parts[plain_threads];
    __shared__ float new_parts[plain_threads];
    wait_for_kernel_before();
    const PlainWalk walk = PlainWalk::of(p);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const float scale = 1.0F / sqrtf(static_cast<float>(walk.key_dim));
    for (int d = walk.warp; d < walk.key_dim; d += plain_warps)
        state[d * plain_slice + lane] = 0.0F;
    for (std::int64_t t = 0; t < walk.rows; ++t) {
        const std::int64_t row = walk.first + t;
        if (work.rests != nullptr && t > 0 && t % delta_chunk == 0 && walk.inside) {
            float* to = p.states + plain_state(p, row, walk.head, walk.key_dim, walk.value_dim) +
                        walk.column;
            for (int d = walk.warp; d < walk.key_dim; d += plain_warps) {
                to[std::int64_t{d} * walk.value_dim] = state[d * plain_slice + lane];
            }
        }
        const T* q = plain_row<T>(p.q, row, walk.key_head, walk.key_dim);
        const T* k = plain_row<T>(p.k, row, walk.key_head, walk.key_dim);
        const float of_q = plain_length(q, walk.key_dim) * scale;
        const float of_k = plain_length(k, walk.key_dim);
        float old = 0.0F;
        for (int d = walk.warp; d < walk.key_dim; d += plain_warps) {
            old += state[d * plain_slice + lane] * to_float(k[d]);
        }
        old = sum_over_warps(old, old_parts) * of_k;
        const float decay = expf(p.g[row * p.value_heads + walk.head]);
        const float v =
            walk.inside ? to_float(plain_row<T>(p.v, row, walk.head, walk.value_dim)[walk.column])
                        : 0.0F;
        const float rest = v - decay * old;
        const float u = p.beta[row * p.value_heads + walk.head] * rest;
        float output = 0.0F;
        for (int d = walk.warp; d < walk.key_dim; d += plain_warps) {
            float& s = state[d * plain_slice + lane];
            s = decay * s + of_k * to_float(k[d]) * u;
            output += s * to_float(q[d]);
        }
        output = sum_over_warps(output, new_parts) * of_q;
        if (!walk.inside || walk.warp != 0) continue;
        if (work.rests != nullptr) {
            work.rests[walk.value_at(p, row)] = rest;
        } else {
            static_cast<T*>(p.o.data)[row * p.o.ld + walk.head * walk.value_dim + walk.column] =
                from_float<T>(output);
        }
    }
}

}  // namespace

cudaError_t go_through_rows(cudaStream_t stream, const DeltaRuleParams& p,
                            const PlainWorkspace& work) {
    const auto shared =
        static_cast<std::size_t>(p.q.cols / p.key_heads) * plain_slice * sizeof(float);
    return with_type(p.q.type, [&](auto element) {
        return launch_early(stream, rows_kernel<decltype(element)>, PlainWalk::grid(p),
                            plain_threads, shared, p, work);
    });
}

cudaError_t delta_rule_plain(cudaStream_t stream, const DeltaRuleParams& p) {
    return go_through_rows(stream, p, {});
}

}  // namespace loratrain::kernels::delta
