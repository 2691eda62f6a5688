#pragma once

#include <cmath>

#include "kernels/attention_launch.h"
#include "kernels/attention_tile.cuh"
#include "kernels/tensor_core.cuh"
#include "warpgroup.cuh"

/// Pieces of the attention kernels with warpgroup products. A block has one warpgroup that copies,
/// and two or three that multiply, each for 64 rows of a resident tile; tiles of 64 rows of two
/// matrices stream by. Code here for two warpgroups is for the kernels of gradients.

namespace loratrain::kernels::warpgroup {

constexpr int group_rows = 64;
constexpr int groups = 2;  ///< warpgroups that multiply
constexpr int resident_rows = groups * group_rows;
static_assert(resident_rows == attention_hopper_rows);
constexpr int streamed_rows = 64;
constexpr int streamed_panel = streamed_rows * panel_row_bytes;
constexpr int copying_threads = warpgroup_threads;
constexpr int multiplying_threads = groups * warpgroup_threads;
constexpr int all_threads = copying_threads + multiplying_threads;

/// Registers per thread of the warpgroups that copy and that multiply. Warpgroups share the
/// registers with which their block starts: one that takes more than the others release waits for
/// ever.
template <int groups, int copying, int multiplying>
struct Registers {
    static constexpr int threads = (1 + groups) * warpgroup_threads;
    static constexpr int at_start = 65536 / threads / 8 * 8;
    static_assert(copying + groups * multiplying <= (1 + groups) * at_start);

    static __device__ __forceinline__ void of_copying() { give_registers<copying>(); }
    static __device__ __forceinline__ void of_multiplying() { take_registers<multiplying>(); }
};

/// Bytes of a panel: gradients of scores of 64 keys (rows) and 64 queries.
constexpr int scores_bytes = group_rows * panel_row_bytes;
constexpr int stats_bytes = streamed_rows * static_cast<int>(sizeof(float2));

/// Heads of up to `head_columns` columns.
template <int head_columns>
struct BlockShape {
    static constexpr int dim = head_columns;
    static constexpr int stages = 3;
    static constexpr int multiplying_warps = multiplying_threads / 32;
    static constexpr int panels = dim / panel_columns;

    static constexpr int resident_panel = resident_rows * panel_row_bytes;
    static constexpr int resident_bytes = panels * resident_panel;
    static constexpr int streamed_bytes = panels * streamed_panel;
    static constexpr int stage_bytes = 2 * streamed_bytes;

    /// Shared memory, from a multiple of 1024 on. Barriers are 8 bytes each.
    static constexpr int resident_at = 0;  ///< two tiles
    static constexpr int stages_at = resident_at + 2 * resident_bytes;
    static constexpr int output_at = stages_at + stages * stage_bytes;
    /// For each group 64 rows of output; before that, two panels of scores.
    static constexpr int output_bytes = 2 * scores_bytes;
    static_assert(streamed_bytes <= output_bytes);
    static constexpr int stats_at = output_at + groups * output_bytes;
    static constexpr int filled_at = stats_at + stages * stats_bytes;
    static constexpr int free_at = filled_at + stages * 8;
    static constexpr int resident_filled_at = free_at + stages * 8;
    static constexpr int resident_free_at = resident_filled_at + 8;
    static constexpr int shared_bytes = resident_free_at + 8;
    static_assert(shared_bytes <= most_shared_bytes);
};

/// Addresses of a stage: its barriers and its two tiles (queries and their output's gradients, or
/// keys and values).
template <class Shape>
__device__ __forceinline__ std::uint32_t filled_barrier(std::uint32_t shared, int stage) {
    return shared + Shape::filled_at + stage * 8;
}
template <class Shape>
__device__ __forceinline__ std::uint32_t free_barrier(std::uint32_t shared, int stage) {
    return shared + Shape::free_at + stage * 8;
}
template <class Shape>
__device__ __forceinline__ std::uint32_t first_tile(std::uint32_t shared, int stage) {
    return shared + Shape::stages_at + stage * Shape::stage_bytes;
}
template <class Shape>
__device__ __forceinline__ std::uint32_t second_tile(std::uint32_t shared, int stage) {
    return first_tile<Shape>(shared, stage) + Shape::streamed_bytes;
}

/// Place of a thread that multiplies; equal for all threads of a warp.
struct Place {
    int group;
    int warp;  ///< within the group

    __device__ __forceinline__ Place() {
        const int thread = static_cast<int>(threadIdx.x) - copying_threads;
        const int warp_of_all = __shfl_sync(0xffffffffU, thread / 32, 0);
        group = warp_of_all / 4;
        warp = warp_of_all % 4;
    }
};

/// Computed at each use, so that no register holds it.
__device__ __forceinline__ int lane_number() {
    int lane = 0;
    asm volatile("mov.u32 %0, %laneid;\n" : "=r"(lane));
    return lane;
}

/// The next stage, and the parity of its barriers.
template <int stages>
struct StageWalk {
    int stage = 0;
    std::uint32_t parity = 0;

    __device__ __forceinline__ void next() {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1U;
        }
    }
};

/// Copies rows [begin, begin + rows) of a head to panels, by `threads` threads; zeros beyond the
/// sample and beyond the head's columns.
template <int dim, int rows, int threads>
__device__ __forceinline__ void load_panels(std::uint32_t target, const HeadRows& source, int begin,
                                            int thread) {
    constexpr int pieces = dim / 8;
    constexpr int rows_of_pass = threads / pieces;
    static_assert(rows_of_pass % 8 == 0 && rows % rows_of_pass == 0);
    const int piece = thread % pieces;
    const int row = thread / pieces;
    const std::uint32_t to =
        target + piece / 8 * (rows * panel_row_bytes) + panel_offset(row, piece % 8);
    const Bf16* from = source.data + static_cast<std::int64_t>(begin + row) * source.ld + piece * 8;
    const int limit = piece < source.chunks ? source.length - begin - row : 0;
#pragma unroll
    for (int i = 0; i < rows / rows_of_pass; ++i) {
        copy_16_async(to + i * rows_of_pass * panel_row_bytes, from,
                      i * rows_of_pass < limit ? 16 : 0);
        from += rows_of_pass * source.ld;
    }
}

/// load_panels() of wide heads, one panel after another.
template <int dim, int rows, int threads>
__device__ __forceinline__ void load_wide_panels(std::uint32_t target, const HeadRows& source,
                                                 int begin, int thread) {
#pragma unroll
    for (int i = 0; i < dim / panel_columns; ++i) {
        load_panels<panel_columns, rows, threads>(target + i * rows * panel_row_bytes,
                                                  columns_from(source, i), begin, thread);
    }
}

/// The key-value heads of a launch.
struct KvHeads {
    std::int32_t first;
    std::int32_t count;
    bool keep_scores;
};

/// Barriers of the stages: all threads that copy fill a stage, all warps that multiply free it.
template <class Shape>
__device__ __forceinline__ void make_stage_barriers(std::uint32_t shared) {
    for (int stage = 0; stage < Shape::stages; ++stage) {
        make_barrier(filled_barrier<Shape>(shared, stage), copying_threads);
        make_barrier(free_barrier<Shape>(shared, stage), Shape::multiplying_warps);
    }
}

/// Address of the gradients of scores of a head's pair of tiles; `head` counts the launch's heads.
__device__ __forceinline__ char* scores_of(const AttentionBackwardParams& p,
                                           const AttentionTile& tile, int head, int query_begin,
                                           int key_begin) {
    const int queries = query_begin / streamed_rows;
    const std::int64_t pair = tile.pairs + queries * (queries + 1) / 2 + key_begin / group_rows;
    return static_cast<char*>(p.scores) + (head * p.tile_pairs + pair) * scores_bytes;
}

/// Waits for this thread's copies and arrives at the barrier.
__device__ __forceinline__ void finish_copies(std::uint32_t barrier) {
    commit_copies();
    wait_for_copies();
    show_to_products();
    arrive(barrier);
}

/// Steps of 64 keys.
struct StepRange {
    int begin;
    int end;
};
/// The steps whose keys the 64 queries from `begin` on see; the first step has the keys from
/// `first` on. None for queries that the sample does not have.
__device__ __forceinline__ StepRange steps_of_queries(const AttentionTile& tile, int begin,
                                                      int first, int sliding_window) {
    if (begin >= tile.length) return {0, 0};
    const int own = first_key_tile(begin, sliding_window, streamed_rows);
    return {(own - first) / streamed_rows, (begin - first) / streamed_rows + 1};
}

/// Scores of 64 queries and 64 keys to probabilities, by `stats` of attention_row_stats() of the
/// lane's rows r and r + 8. `scale` is in units of log 2.
__device__ __forceinline__ void turn_to_probabilities(float (&scores)[32], const float2 (&stats)[2],
                                                      float scale) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        scores[i] = exp2_fast(fmaf(scores[i], scale, -stats[(i >> 1) & 1].x));
    }
}

/// Gradients of these probabilities to gradients of scores.
__device__ __forceinline__ void turn_to_score_gradients(float (&gradients)[32],
                                                        const float (&probabilities)[32],
                                                        const float2 (&stats)[2]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        gradients[i] = probabilities[i] * (gradients[i] - stats[(i >> 1) & 1].y);
    }
}

/// Sets scores of keys that a query does not see to -inf, in the warp's 16 rows of 64 queries and
/// 64 keys. `ahead`: first query - first key.
__device__ __forceinline__ void hide_keys(float (&scores)[32], int ahead, int warp,
                                          int sliding_window) {
    if (ahead >= group_rows && ahead < sliding_window - (group_rows - 1)) return;
    const int lane = lane_number();
    const int first = ahead + warp * 16 + (lane >> 2) - ((lane & 3) << 1);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int distance = first - i / 4 * 8 - (i & 1) + ((i >> 1) & 1) * 8;
        if (is_hidden(distance, sliding_window)) scores[i] = -INFINITY;
    }
}

/// Loads 16 rows of a resident tile as operands in registers.
template <int panel, int words>
__device__ __forceinline__ void load_rows(std::uint32_t (&rows)[words], std::uint32_t from) {
    const int lane = lane_number();
#pragma unroll
    for (int k = 0; k < words / 4; ++k) {
        load_fragments(*reinterpret_cast<std::uint32_t(*)[4]>(rows + 4 * k),
                       from + k / 4 * panel + panel_offset(lane & 15, k % 4 * 2 + (lane >> 4)));
    }
}

/// d = rows[64, dim] streamed[64, dim]ᵀ; `panel`: bytes between the panels of `rows`.
template <int dim, int panel>
__device__ __forceinline__ void start_scores(float (&d)[32], std::uint32_t rows,
                                             std::uint32_t streamed) {
    const std::uint32_t a = panel_operand(rows);
    const std::uint32_t b = panel_operand(streamed);
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
        const std::uint32_t a_at = a + (k / 4 * panel + k % 4 * 32) / 16;
        const std::uint32_t b_at = b + (k / 4 * streamed_panel + k % 4 * 32) / 16;
        if (k == 0) {
            begin_rows(d, a_at, b_at);
        } else {
            multiply_rows(d, a_at, b_at);
        }
    }
    commit_products();
}

/// d = rows[64, dim] streamed[64, dim]ᵀ with rows in registers.
template <int words>
__device__ __forceinline__ void start_scores(float (&d)[32], const std::uint32_t (&rows)[words],
                                             std::uint32_t streamed) {
    constexpr int dim = 4 * words;
    const std::uint32_t b = panel_operand(streamed);
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
        const std::uint32_t b_at = b + (k / 4 * streamed_panel + k % 4 * 32) / 16;
        if (k == 0) {
            begin_rows(d, rows + 4 * k, b_at);
        } else {
            multiply_rows(d, rows + 4 * k, b_at);
        }
    }
    commit_products();
}

/// sums[64, dim] += a[64, 64] streamed[64, dim].
template <int sums_of_thread>
__device__ __forceinline__ void start_sums(float (&sums)[sums_of_thread],
                                           const std::uint32_t (&a)[16], std::uint32_t streamed) {
    const std::uint32_t b = panel_operand(streamed, streamed_panel);
#pragma unroll
    for (int k = 0; k < streamed_rows / 16; ++k) {
        multiply_columns(sums, a + 4 * k, b + k * panel_row_bytes);
    }
    commit_products();
}

__device__ __forceinline__ void round_to(std::uint32_t (&a)[16], const float (&x)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) a[i] = pack(x[2 * i], x[2 * i + 1]);
}

/// Stores 16 rows of a warp, times `scale`, through shared memory to rows [begin, begin + 16) of a
/// head.
template <int sums_of_thread>
__device__ __forceinline__ void store_rows(const float (&sums)[sums_of_thread], float scale,
                                           std::uint32_t panel, const HeadRows& target, int begin) {
    constexpr int dim = 2 * sums_of_thread;
    constexpr int pieces = dim / 8;
    const int lane = lane_number();
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
        std::uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            a[i] = pack(sums[8 * k + 2 * i] * scale, sums[8 * k + 2 * i + 1] * scale);
        }
        store_fragments(
            panel + k / 4 * streamed_panel + panel_offset(lane & 15, k % 4 * 2 + (lane >> 4)), a);
    }
    __syncwarp();
    const int piece = lane % pieces;
#pragma unroll
    for (int i = 0; i < pieces / 2; ++i) {
        const int at = i * (32 / pieces) + lane / pieces;
        if (begin + at >= target.length || piece >= target.chunks) break;
        uint4 value;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                     : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                     : "r"(panel + piece / 8 * streamed_panel + panel_offset(at, piece % 8)));
        *reinterpret_cast<uint4*>(target.data + static_cast<std::int64_t>(begin + at) * target.ld +
                                  piece * 8) = value;
    }
    __syncwarp();
}

/// store_rows() of wide heads, one panel after another through the 16 rows of one.
template <int sums_of_thread>
__device__ __forceinline__ void store_panels(const float (&sums)[sums_of_thread], float scale,
                                             std::uint32_t panel, const HeadRows& target,
                                             int begin) {
#pragma unroll
    for (int i = 0; i < sums_of_thread / 32; ++i) {
        store_rows(*reinterpret_cast<const float(*)[32]>(sums + 32 * i), scale, panel,
                   columns_from(target, i), begin);
    }
}

}  // namespace loratrain::kernels::warpgroup
