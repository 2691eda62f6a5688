#include "delta_launch.h"
#include "delta_walk.cuh"

/// The states of the delta rule, chunk after chunk: V' = U - W S, S <- e^G_last S + sum over rows
/// of e^(G_last - G) k^ V'.

namespace loratrain::kernels::delta {

namespace {

constexpr int stages = 2;
/// A stage: W, k, the slice of U; G and 1 / |k| of each row.
constexpr int stage_bytes = 2 * dim_tile_bytes + slice_tile_bytes + 2 * chunk_rows * 4;
constexpr int states_shared = stages * stage_bytes;
static_assert(states_shared <= delta_shared_bytes);

__device__ __forceinline__ void copy_stage(const DeltaRuleParams& p, const Workspace& work,
                                           const Walk& walk, int begin, std::uint32_t to,
                                           int thread) {
    const std::int64_t first = walk.first + begin;
    const int rows = min(chunk_rows, walk.rows - begin);
    const std::int64_t at = first * p.value_heads + walk.head;
    const std::int64_t ld = std::int64_t{p.value_heads} * dim;
    copy_in<chunk_rows, dim, copying>(to, work.w + at * dim, ld, rows, thread);
    copy_head_in<copying>(to + dim_tile_bytes, p.k, first, walk.key_head, rows, thread);
    copy_in<chunk_rows, slice, copying>(to + 2 * dim_tile_bytes, work.u + at * dim + walk.column,
                                        ld, rows, thread);
    const std::uint32_t scalars = to + 2 * dim_tile_bytes + slice_tile_bytes + thread * 4;
    const int row = min(thread, rows - 1);
    copy_float(scalars, work.sums + at + std::int64_t{row} * p.value_heads, true);
    copy_float(scalars + chunk_rows * 4,
               work.key_factors + (first + row) * p.key_heads + walk.key_head, thread < rows);
}

/// Block: a slice of a value head of a sample.
__global__ void __launch_bounds__(computing + copying)
    states_kernel(const __grid_constant__ DeltaRuleParams p, Workspace work) {
    extern __shared__ __align__(128) char memory[];
    wait_for_kernel_before();
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int warp = thread / 32;
    const Walk walk = Walk::of(p);
    if (walk.rows <= chunk_rows) return;  // V' = U, and no state is needed
    const std::uint32_t shared = shared_address(memory);
    const int chunks = (walk.rows + chunk_rows - 1) / chunk_rows;
    const bool copies = thread >= computing;
    const auto copy = [&](int chunk) {
        if (chunk < chunks) {
            copy_stage(p, work, walk, chunk * chunk_rows, shared + chunk % stages * stage_bytes,
                       thread - computing);
        }
        commit_pieces();
    };
    if (copies) {
#pragma unroll
        for (int chunk = 0; chunk < stages - 1; ++chunk) copy(chunk);
    }
    float state[16][4] = {};
    for (int chunk = 0; chunk < chunks; ++chunk) {
        if (copies) wait_for_pieces<stages - 2>();
        __syncthreads();
        if (copies) {
            copy(chunk + stages - 1);
            continue;
        }
        const std::uint32_t stage = shared + chunk % stages * stage_bytes;
        const std::uint32_t keys = stage + dim_tile_bytes;
        const std::uint32_t values = keys + dim_tile_bytes;
        const auto* sums = reinterpret_cast<const float*>(
            memory + (chunk % stages * stage_bytes + 2 * dim_tile_bytes + slice_tile_bytes));
        const int begin = chunk * chunk_rows;
        float v[8][4] = {};
        if (chunk > 0) {
            std::uint32_t operand[8][4];
            char* to = state_of(p, walk.first + begin, walk.head) +
                       block_at<dim>(walk.column / 8 + 2 * warp, 0);
            round_state(operand, state, to, lane);
            add_products(v, operand, stage, lane);
#pragma unroll
            for (int n = 0; n < 8; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) v[n][e] = -v[n][e];
            }
        }
        add_slice(v, values + block_at<slice>(0, 2 * warp), lane);
        if (chunk > 0) {
            const std::int64_t at =
                ((walk.first + begin) * p.value_heads + walk.head) * dim + walk.column + warp * 16;
            store_values(v, work.u + at, std::int64_t{p.value_heads} * dim, walk.rows - begin,
                         lane);
        }
        if (chunk == chunks - 1) break;
        const float last = sums[chunk_rows - 1];
        const float shrink = decay(last);
#pragma unroll
        for (int n = 0; n < 16; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) state[n][e] *= shrink;
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float scaled[2][4];
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const int row = (2 * k + n) * 8 + lane % 4 * 2;
                const float2 sum = *reinterpret_cast<const float2*>(sums + row);
                const float2 length = *reinterpret_cast<const float2*>(sums + chunk_rows + row);
                const float left = length.x * decay(last - sum.x);
                const float right = length.y * decay(last - sum.y);
                scaled[n][0] = v[2 * k + n][0] * left;
                scaled[n][1] = v[2 * k + n][1] * right;
                scaled[n][2] = v[2 * k + n][2] * left;
                scaled[n][3] = v[2 * k + n][3] * right;
            }
            std::uint32_t a[4];
            as_operand(a, scaled[0], scaled[1]);
            add_rows(state, a, keys, k, lane);
        }
    }
}

cudaError_t launch(cudaStream_t stream, const DeltaRuleParams& p, const Workspace& work) {
    return launch_with_shared<states_kernel, states_shared>(stream, p.shared_limit, Walk::grid(p),
                                                            computing + copying, p, work);
}

}  // namespace

cudaError_t make_states(cudaStream_t stream, const DeltaRuleParams& p) {
    return launch(stream, p, Workspace::of(p));
}

cudaError_t make_states(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    return launch(stream, p.forward, Workspace::of(p));
}

}  // namespace loratrain::kernels::delta
