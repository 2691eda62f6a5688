#include "delta_launch.h"
#include "delta_walk.cuh"

/// Gradients of the states of the delta rule, chunk after chunk from the last. With dS that of the
/// state after the chunk: dV' = Pᵀ dO + e^(G_last - G) k^ dS; then dS <- e^G_last dS + (e^G q^)ᵀ dO
/// - Wᵀ dV'.

namespace loratrain::kernels::delta {

namespace {

/// Left operands with their columns times `factors`.
__device__ __forceinline__ void scale_operands(std::uint32_t (&to)[4][4],
                                               const std::uint32_t (&from)[4][4],
                                               const float* factors, int lane) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            const float2 factor =
                *reinterpret_cast<const float2*>(factors + k * 16 + part / 2 * 8 + lane % 4 * 2);
            to[k][part] =
                pack(low_half(from[k][part]) * factor.x, high_half(from[k][part]) * factor.y);
        }
    }
}

/// Block: a slice of a value head of a sample.
template <int stages>
__global__ void __launch_bounds__(walk_threads, 1)
    state_gradients_kernel(const __grid_constant__ DeltaRuleBackwardParams params, Workspace work) {
    extern __shared__ __align__(128) char memory[];
    wait_for_kernel_before();
    const DeltaRuleParams& p = params.forward;
    const Walk walk = Walk::of(p);
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int warp = __shfl_sync(0xffffffffU, thread / 32, 0);
    const std::uint32_t shared = shared_address(memory);
    const int column = walk.column + warp * 16;
    const auto copy = [&](int number, int place) {
        const int chunk = walk.chunks - 1 - number;
        const int of_group = thread - group_threads;
        copy_stage<true>(p, work, walk, chunk, shared + place, of_group);
        copy_in<slice, group_threads>(
            shared + place + stage_slice,
            head_of(params.d_o, walk.first_of(chunk), walk.head) + walk.column, params.d_o.ld,
            walk.rows_of(chunk), of_group);
    };
    float gradient[16][4] = {};
    const auto take = [&](int number, int place) {
        const int chunk = walk.chunks - 1 - number;
        const std::uint32_t stage = shared + place;
        const auto* sums = reinterpret_cast<const float*>(memory + place + stage_sums);
        const auto* of_keys = reinterpret_cast<const float*>(memory + place + stage_of_keys);
        const auto* of_queries = reinterpret_cast<const float*>(memory + place + stage_of_queries);
        const std::int64_t first = walk.first_of(chunk);
        std::uint32_t operand[8][4];
        round_state(operand, gradient);
        std::uint32_t outputs[4][4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            Left<slice, true>{stage + stage_slice + block_at<slice>(2 * k, 0)}.load(outputs[k],
                                                                                    warp, lane);
        }
        std::uint32_t scaled[4][4];
        scale_operands(scaled, outputs, of_queries, lane);
        scale_all(gradient, decay(sums[chunk_rows - 1]));
        float v[8][4] = {};
        begin_products(v, gradient);
        add_inner(v, operand, stage + stage_keys, lane);
        commit_products();
        add_outer(gradient, scaled, stage + stage_queries, lane);
        commit_products();
        if (number > 0) {
            store_state(state_of(p, first + chunk_rows, walk.head) + state_bytes +
                            block_at<dim>(column / 8, 0),
                        operand, lane);
        }
        wait_for_products<0>(v, gradient);
        scale_columns(v, of_keys, lane);
        begin_products(v);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            add_columns<chunk_rows>(v, outputs[k],
                                    stage + stage_scores + block_at<chunk_rows>(2 * k, 0), lane);
        }
        commit_products();
        wait_for_products<0>(v);
        std::uint32_t values[4][4];
        round_values(values, v);
        begin_products(gradient);
        add_outer(gradient, values, stage + stage_w, lane);
        commit_products();
        store_columns(work.at(work.d_u, walk.head, first, dim), values, column, walk.rows_of(chunk),
                      lane);
        wait_for_products<0>(gradient);
    };
    walk_steps<stages, stage_bytes>(walk.chunks, copy, take);
}

template <int stages>
cudaError_t launch(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    return launch_with_shared<state_gradients_kernel<stages>, stages * stage_bytes>(
        stream, p.forward.shared_limit, Walk::grid(p.forward), walk_threads, p,
        Workspace::of(p.forward, true));
}

}  // namespace

cudaError_t make_state_gradients(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    static_assert(2 * stage_bytes <= delta_backward_shared_bytes);
    return p.forward.shared_limit >= 3 * stage_bytes ? launch<3>(stream, p) : launch<2>(stream, p);
}

}  // namespace loratrain::kernels::delta
