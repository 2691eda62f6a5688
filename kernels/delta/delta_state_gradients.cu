#include "delta_launch.h"
#include "delta_walk.cuh"

/// Gradients of the states of the delta rule, chunk after chunk from the last. With dS that of the
/// state after the chunk: dV' = Pᵀ dO + e^(G_last - G) k^ dS, which begin_gradients() has begun;
/// then dS <- e^G_last dS + (e^G q^)ᵀ dO - Wᵀ dV'.

namespace loratrain::kernels::delta {

namespace {

constexpr int scalar_rows = 3;
/// A stage: W, k, q; the slices of dO and dV'; G, 1 / |k| and the factor of q of each row.
constexpr int stage_bytes =
    3 * dim_tile_bytes + 2 * slice_tile_bytes + scalar_rows * chunk_rows * 4;
template <int stages>
constexpr int gradients_shared = stages* stage_bytes;
static_assert(gradients_shared<2> <= delta_backward_shared_bytes);

__device__ __forceinline__ void copy_stage(const DeltaRuleBackwardParams& params,
                                           const Workspace& work, const Walk& walk, int begin,
                                           std::uint32_t to, int thread) {
    const DeltaRuleParams& p = params.forward;
    const std::int64_t first = walk.first + begin;
    const int rows = min(chunk_rows, walk.rows - begin);
    const std::int64_t at = first * p.value_heads + walk.head;
    const std::int64_t ld = std::int64_t{p.value_heads} * dim;
    copy_in<chunk_rows, dim, copying>(to, work.w + at * dim, ld, rows, thread);
    copy_head_in<copying>(to + dim_tile_bytes, p.k, first, walk.key_head, rows, thread);
    copy_head_in<copying>(to + 2 * dim_tile_bytes, p.q, first, walk.key_head, rows, thread);
    const std::uint32_t slices_at = to + 3 * dim_tile_bytes;
    copy_in<chunk_rows, slice, copying>(slices_at,
                                        head_of(params.d_o, first, walk.head) + walk.column,
                                        params.d_o.ld, rows, thread);
    copy_in<chunk_rows, slice, copying>(slices_at + slice_tile_bytes,
                                        work.d_u + at * dim + walk.column, ld, rows, thread);
    const std::uint32_t scalars = slices_at + 2 * slice_tile_bytes + thread * 4;
    const int row = min(thread, rows - 1);
    const std::int64_t of_key = (first + row) * p.key_heads + walk.key_head;
    copy_float(scalars, work.sums + at + std::int64_t{row} * p.value_heads, true);
    copy_float(scalars + chunk_rows * 4, work.key_factors + of_key, thread < rows);
    copy_float(scalars + 2 * chunk_rows * 4, work.query_factors + of_key, thread < rows);
}

/// gradient += (e^G q^)ᵀ dO for the warp's 16 columns of a tile dO [64, slice] at `tile`.
__device__ __forceinline__ void add_queries(float (&gradient)[16][4], std::uint32_t tile,
                                            std::uint32_t queries, const float* sums, int lane) {
    const std::uint32_t at = tile + cols_first<slice>(lane);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        std::uint32_t a[4];
        load_fragments_transposed(a, at + block_at<slice>(2 * k, 0));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = k * 16 + half * 8 + lane % 4 * 2;
            const float2 sum = *reinterpret_cast<const float2*>(sums + row);
            const float2 length = *reinterpret_cast<const float2*>(sums + 2 * chunk_rows + row);
            const float left = length.x * decay(sum.x);
            const float right = length.y * decay(sum.y);
#pragma unroll
            for (int part = 2 * half; part < 2 * half + 2; ++part) {
                a[part] = pack(low_half(a[part]) * left, high_half(a[part]) * right);
            }
        }
        add_rows(gradient, a, queries, k, lane);
    }
}

/// Block: a slice of a value head of a sample.
template <int stages>
__global__ void __launch_bounds__(computing + copying)
    state_gradients_kernel(const __grid_constant__ DeltaRuleBackwardParams params, Workspace work) {
    extern __shared__ __align__(128) char memory[];
    wait_for_kernel_before();
    const DeltaRuleParams& p = params.forward;
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int warp = thread / 32;
    const Walk walk = Walk::of(p);
    if (walk.rows <= chunk_rows) return;  // dV' = Pᵀ dO, and no state has a gradient
    const std::uint32_t shared = shared_address(memory);
    const int chunks = (walk.rows + chunk_rows - 1) / chunk_rows;
    const bool copies = thread >= computing;
    const auto copy = [&](int number) {
        if (number < chunks) {
            copy_stage(params, work, walk, (chunks - 1 - number) * chunk_rows,
                       shared + number % stages * stage_bytes, thread - computing);
        }
        commit_pieces();
    };
    if (copies) {
#pragma unroll
        for (int number = 0; number < stages - 1; ++number) copy(number);
    }
    float gradient[16][4] = {};
    for (int number = 0; number < chunks; ++number) {
        if (copies) wait_for_pieces<stages - 2>();
        __syncthreads();
        if (copies) {
            copy(number + stages - 1);
            continue;
        }
        const int place = number % stages * stage_bytes;
        const std::uint32_t stage = shared + place;
        const std::uint32_t keys = stage + dim_tile_bytes;
        const std::uint32_t own = stage + 3 * dim_tile_bytes + block_at<slice>(0, 2 * warp);
        const auto* sums = reinterpret_cast<const float*>(
            memory + (place + 3 * dim_tile_bytes + 2 * slice_tile_bytes));
        const int begin = (chunks - 1 - number) * chunk_rows;
        const float last = sums[chunk_rows - 1];
        float v[8][4] = {};
        if (number > 0) {
            std::uint32_t operand[8][4];
            char* to = state_of(p, walk.first + begin + chunk_rows, walk.head) + state_bytes +
                       block_at<dim>(walk.column / 8 + 2 * warp, 0);
            round_state(operand, gradient, to, lane);
            add_products(v, operand, keys, lane);
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                const int row = n * 8 + lane % 4 * 2;
                const float2 sum = *reinterpret_cast<const float2*>(sums + row);
                const float2 length = *reinterpret_cast<const float2*>(sums + chunk_rows + row);
                const float left = length.x * decay(last - sum.x);
                const float right = length.y * decay(last - sum.y);
                v[n][0] *= left;
                v[n][1] *= right;
                v[n][2] *= left;
                v[n][3] *= right;
            }
        }
        add_slice(v, own + slice_tile_bytes, lane);
        if (number > 0) {
            const std::int64_t at =
                ((walk.first + begin) * p.value_heads + walk.head) * dim + walk.column + warp * 16;
            store_values(v, work.d_u + at, std::int64_t{p.value_heads} * dim, walk.rows - begin,
                         lane);
        }
        if (begin == 0) break;
        const float shrink = decay(last);
#pragma unroll
        for (int n = 0; n < 16; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) gradient[n][e] *= shrink;
        }
        add_queries(gradient, own, stage + 2 * dim_tile_bytes, sums, lane);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) v[n][e] = -v[n][e];
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            std::uint32_t a[4];
            as_operand(a, v[2 * k], v[2 * k + 1]);
            add_rows(gradient, a, stage, k, lane);
        }
    }
}

template <int stages>
cudaError_t launch(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    return launch_with_shared<state_gradients_kernel<stages>, gradients_shared<stages>>(
        stream, p.forward.shared_limit, Walk::grid(p.forward), computing + copying, p,
        Workspace::of(p));
}

}  // namespace

cudaError_t make_state_gradients(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    return p.forward.shared_limit >= gradients_shared<3> ? launch<3>(stream, p)
                                                         : launch<2>(stream, p);
}

}  // namespace loratrain::kernels::delta
