#include "delta_launch.h"
#include "delta_walk.cuh"

/// The states of the delta rule, chunk after chunk: V' = U - W S, S <- e^G_last S + sum over rows
/// of e^(G_last - G) k^ V'. Forward makes the outputs of a chunk on the way, O = e^G q^ S + P V';
/// gradients keep S and V'.

namespace loratrain::kernels::delta {

namespace {

/// The warp's 16 columns of a slice, transposed.
__device__ __forceinline__ void load_slice(float (&values)[8][4], std::uint32_t tile, int warp,
                                           int lane) {
    const std::uint32_t at = tile + block_at<slice>(0, 2 * warp) + cols_first<slice>(lane);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
        std::uint32_t words[4];
        load_fragments_transposed(words, at + block_at<slice>(n, 0));
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            values[n + part / 2][part % 2 * 2] = low_half(words[part]);
            values[n + part / 2][part % 2 * 2 + 1] = high_half(words[part]);
        }
    }
}

/// Stores the warp's 16 columns of outputs, transposed in `o`, by way of its columns of a slice.
__device__ __forceinline__ void store_outputs(const float (&o)[8][4], std::uint32_t tile, Bf16* to,
                                              std::int64_t ld, int rows, int warp, int lane) {
    const std::uint32_t own = tile + block_at<slice>(0, 2 * warp);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const std::uint32_t at = own + block_at<slice>(n, 0) + lane * 4;
        store_word(at, transpose(pack(o[n][0], o[n][1])));
        store_word(at + block_bytes, transpose(pack(o[n][2], o[n][3])));
    }
    __syncwarp();
    const int row = lane / 2;
    const std::uint32_t from = own + block_at<slice>(row / 8, lane % 2) + row % 8 * 16;
    Bf16* target = to + row * ld + warp * 16 + lane % 2 * 8;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        const uint4 piece = load_piece(from + block_at<slice>(2 * n, 0));
        if (n * 16 + row < rows) *reinterpret_cast<uint4*>(target) = piece;
        target += 16 * ld;
    }
}

/// Block: a slice of a value head of a sample.
template <bool outputs, int stages>
__global__ void __launch_bounds__(walk_threads, 1)
    states_kernel(const __grid_constant__ DeltaRuleParams p, Workspace work) {
    extern __shared__ __align__(128) char memory[];
    wait_for_kernel_before();
    const Walk walk = Walk::of(p);
    if (!outputs && walk.rows <= chunk_rows) return;  // V' = U, and no state is needed
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int warp = __shfl_sync(0xffffffffU, thread / 32, 0);
    const std::uint32_t shared = shared_address(memory);
    const int column = walk.column + warp * 16;
    const auto copy = [&](int chunk, int place) {
        const int of_group = thread - group_threads;
        copy_stage<outputs>(p, work, walk, chunk, shared + place, of_group);
        copy_tile<dim, slice, group_threads>(shared + place + stage_slice,
                                             work.at(work.u, walk.head, walk.first_of(chunk), dim),
                                             walk.column, walk.rows_of(chunk), of_group);
    };
    float state[16][4] = {};
    const auto take = [&](int chunk, int place) {
        const std::uint32_t stage = shared + place;
        const auto* sums = reinterpret_cast<const float*>(memory + place + stage_sums);
        const auto* of_keys = reinterpret_cast<const float*>(memory + place + stage_of_keys);
        const auto* of_queries = reinterpret_cast<const float*>(memory + place + stage_of_queries);
        const std::int64_t first = walk.first_of(chunk);
        const int rows = walk.rows_of(chunk);
        std::uint32_t operand[8][4];
        round_state(operand, state);
        float v[8][4];
        load_slice(v, stage + stage_slice, warp, lane);
        float o[8][4] = {};
        begin_products(v, o);
        add_inner(v, operand, stage + stage_w, lane);
        commit_products();
        if constexpr (outputs) {
            add_inner(o, operand, stage + stage_queries, lane);
            commit_products();
            wait_for_products<1>(v);
        } else {
            if (chunk > 0) {
                store_state(state_of(p, first, walk.head) + block_at<dim>(column / 8, 0), operand,
                            lane);
            }
            wait_for_products<0>(v);
        }
        std::uint32_t values[4][4];
        round_values(values, v);
        if constexpr (!outputs) {
            store_columns(work.at(work.u, walk.head, first, dim), values, column, rows, lane);
        }
        std::uint32_t scaled[4][4];
        scale_columns(v, of_keys, lane);
        round_values(scaled, v);
        if constexpr (outputs) {
            wait_for_products<0>(o);
            scale_columns(o, of_queries, lane);
        }
        scale_all(state, decay(sums[chunk_rows - 1]));
        begin_products(state, o);
        if constexpr (outputs) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                add_rows<chunk_rows>(o, values[k],
                                     stage + stage_scores + block_at<chunk_rows>(0, 2 * k), lane);
            }
            commit_products();
        }
        add_outer(state, scaled, stage + stage_keys, lane);
        commit_products();
        if constexpr (outputs) {
            wait_for_products<1>(o);
            store_outputs(o, stage + stage_slice, head_of(p.o, first, walk.head) + walk.column,
                          p.o.ld, rows, warp, lane);
        }
        wait_for_products<0>(state);
    };
    walk_steps<stages, outputs ? stage_bytes : stage_short>(walk.chunks, copy, take);
}

template <bool outputs, int stages>
cudaError_t launch(cudaStream_t stream, const DeltaRuleParams& p) {
    constexpr int shared = stages * (outputs ? stage_bytes : stage_short);
    return launch_with_shared<states_kernel<outputs, stages>, shared>(
        stream, p.shared_limit, Walk::grid(p), walk_threads, p, Workspace::of(p, !outputs));
}

}  // namespace

cudaError_t make_outputs(cudaStream_t stream, const DeltaRuleParams& p) {
    static_assert(stage_bytes <= delta_shared_bytes);
    if (p.shared_limit >= 3 * stage_bytes) return launch<true, 3>(stream, p);
    return p.shared_limit >= 2 * stage_bytes ? launch<true, 2>(stream, p)
                                             : launch<true, 1>(stream, p);
}

cudaError_t make_states(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    static_assert(3 * stage_short <= delta_backward_shared_bytes);
    return launch<false, 3>(stream, p.forward);
}

}  // namespace loratrain::kernels::delta
