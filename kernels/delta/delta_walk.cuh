#pragma once

#include "delta_chunk.cuh"

/// Pieces of the kernels that go through the chunks of a sample with a state [Dk, Dv] or its
/// gradient. Its columns do not depend on each other: a block has `slice` of them, each warp of its
/// first half 16, transposed, in its sums, which are also left operands. The block's second half
/// copies the chunks to come meanwhile.

namespace loratrain::kernels::delta {

constexpr int slice = 64;  ///< columns of a block
constexpr int slices = dim / slice;
constexpr int walk_threads = 2 * group_threads;

/// A stage: tiles of a chunk, and numbers of its rows.
constexpr int stage_w = 0;
constexpr int stage_keys = stage_w + dim_tile_bytes;
constexpr int stage_slice = stage_keys + dim_tile_bytes;  ///< columns of U, or of dO
constexpr int stage_sums = stage_slice + square_tile_bytes;
constexpr int stage_of_keys = stage_sums + chunk_rows * 4;
constexpr int stage_of_queries = stage_of_keys + chunk_rows * 4;
constexpr int stage_short = stage_of_queries + 2 * chunk_rows * 4;  ///< bytes without q and P
constexpr int stage_scores = stage_short;
constexpr int stage_queries = stage_scores + square_tile_bytes;
constexpr int stage_bytes = stage_queries + dim_tile_bytes;
static_assert(slice == chunk_rows && stage_short % block_bytes == 0);

/// What a block goes through.
struct Walk {
    std::int64_t first;  ///< row of the sample
    int rows;            ///< of the sample
    int head;
    int key_head;
    int column;  ///< the slice's first, of the head
    int chunks;

    __device__ static Walk of(const DeltaRuleParams& p) {
        Walk walk;
        walk.first = p.rows.offsets[blockIdx.y];
        walk.rows = static_cast<int>(p.rows.offsets[blockIdx.y + 1] - walk.first);
        walk.head = static_cast<int>(blockIdx.x) / slices;
        walk.key_head = walk.head / (p.value_heads / p.key_heads);
        walk.column = static_cast<int>(blockIdx.x) % slices * slice;
        walk.chunks = (walk.rows + chunk_rows - 1) / chunk_rows;
        return walk;
    }
    static dim3 grid(const DeltaRuleParams& p) {
        return {static_cast<unsigned>(p.value_heads * slices),
                static_cast<unsigned>(p.rows.samples)};
    }
    __device__ std::int64_t first_of(int chunk) const { return first + chunk * chunk_rows; }
    __device__ int rows_of(int chunk) const { return min(chunk_rows, rows - chunk * chunk_rows); }
};

/// Copies what every walk needs of a chunk, and with `whole` q and P; the slice is the caller's.
template <bool whole>
__device__ __forceinline__ void copy_stage(const DeltaRuleParams& p, const Workspace& work,
                                           const Walk& walk, int chunk, std::uint32_t stage,
                                           int thread) {
    const std::int64_t first = walk.first_of(chunk);
    const int rows = walk.rows_of(chunk);
    copy_tile<dim, dim, group_threads>(stage + stage_w, work.at(work.w, walk.head, first, dim), 0,
                                       rows, thread);
    copy_head_in<group_threads>(stage + stage_keys, p.k, first, walk.key_head, rows, thread);
    if constexpr (whole) {
        copy_tile<chunk_rows, chunk_rows, group_threads>(
            stage + stage_scores, work.at(work.scores, walk.head, first, chunk_rows), 0, rows,
            thread);
        copy_head_in<group_threads>(stage + stage_queries, p.q, first, walk.key_head, rows, thread);
    }
    if (thread >= chunk_rows) return;
    const int row = min(thread, rows - 1);
    const bool inside = thread < rows;
    copy_float(stage + stage_sums + thread * 4, work.at(work.sums, walk.head, first) + row, true);
    copy_float(stage + stage_of_keys + thread * 4, work.at(work.of_keys, walk.head, first) + row,
               inside);
    if constexpr (whole) {
        copy_float(stage + stage_of_queries + thread * 4,
                   work.at(work.of_queries, walk.head, first) + row, inside);
    }
}

/// Goes through `count` steps: the second half of the block calls copy(step, place of a stage), the
/// first half take(step, place) when what was copied is there.
template <int stages, int bytes, class Copy, class Take>
__device__ __forceinline__ void walk_steps(int count, const Copy& copy, const Take& take) {
    const bool copies = threadIdx.x >= group_threads;
    const auto copy_ahead = [&](int step) {
        if (step < count) copy(step, step % stages * bytes);
        commit_copies();
    };
    if (copies) {
#pragma unroll
        for (int step = 0; step < stages - 1; ++step) copy_ahead(step);
    }
    for (int step = 0; step < count; ++step) {
        if (copies) {
            if constexpr (stages == 1) copy_ahead(step);
            wait_for_pieces<(stages > 2 ? stages - 2 : 0)>();
            show_to_products();
        }
        __syncthreads();
        if (!copies) {
            take(step, step % stages * bytes);
        } else if constexpr (stages > 1) {
            copy_ahead(step + stages - 1);
        }
        if constexpr (stages == 1) __syncthreads();
    }
}

/// Rounds the warp's 16 columns of a state to left operands.
__device__ __forceinline__ void round_state(std::uint32_t (&operand)[8][4],
                                            const float (&state)[16][4]) {
#pragma unroll
    for (int k = 0; k < 8; ++k) as_operand(operand[k], state[2 * k], state[2 * k + 1]);
}

/// Stores them as 16 rows of a tile [Dv, Dk]; `to`: their first block.
__device__ __forceinline__ void store_state(char* to, const std::uint32_t (&operand)[8][4],
                                            int lane) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            *reinterpret_cast<std::uint32_t*>(to + block_at<dim>(part % 2, 2 * k + part / 2) +
                                              lane * 4) = operand[k][part];
        }
    }
}

/// Stores the warp's 16 columns of a chunk's rows, transposed, rounded in left operands, from
/// `column` on of a tile of the workspace.
__device__ __forceinline__ void store_columns(Bf16* to, const std::uint32_t (&values)[4][4],
                                              int column, int rows, int lane) {
    std::uint32_t words[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int part = 0; part < 4; ++part) words[k][part] = transpose(values[k][part]);
    }
    store_blocks<dim>(to, rows, lane, [&](const auto& store) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                store(2 * k + part / 2, column / 8 + part % 2, words[k][part]);
            }
        }
    });
}

/// Multiplies columns of sums [16, 8 n] by factors of them, in shared memory.
template <int n>
__device__ __forceinline__ void scale_columns(float (&c)[n][4], const float* factors, int lane) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
        const float2 factor = *reinterpret_cast<const float2*>(factors + i * 8 + lane % 4 * 2);
        c[i][0] *= factor.x;
        c[i][1] *= factor.y;
        c[i][2] *= factor.x;
        c[i][3] *= factor.y;
    }
}

template <int n>
__device__ __forceinline__ void scale_all(float (&c)[n][4], float factor) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) c[i][e] *= factor;
    }
}

/// Sums [16, 64] as left operands.
__device__ __forceinline__ void round_values(std::uint32_t (&a)[4][4], const float (&v)[8][4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) as_operand(a[k], v[2 * k], v[2 * k + 1]);
}

/// state += a X for a tile X [64, Dk].
__device__ __forceinline__ void add_outer(float (&state)[16][4], const std::uint32_t (&a)[4][4],
                                          std::uint32_t tile, int lane) {
#pragma unroll
    for (int k = 0; k < 4; ++k) add_columns<dim>(state, a[k], tile + block_at<dim>(2 * k, 0), lane);
}

/// v += Sᵀ Xᵀ for a tile X [64, Dk].
__device__ __forceinline__ void add_inner(float (&v)[8][4], const std::uint32_t (&state)[8][4],
                                          std::uint32_t tile, int lane) {
#pragma unroll
    for (int k = 0; k < 8; ++k) add_rows<dim>(v, state[k], tile + block_at<dim>(0, 2 * k), lane);
}

}  // namespace loratrain::kernels::delta
