#pragma once

#include "kernels/dropout.cuh"
#include "kernels/tensor_core.cuh"
#include "lora_columns.cuh"
#include "lora_launch.h"

/// Pieces of the kernel that makes S of all targets that read X: strips of 8 ranks, copies of X and
/// of factors to shared memory, and sums over the warps.

namespace loratrain::kernels::shrink {

constexpr int threads = 256;
constexpr int warps = threads / 32;
template <int rows>
constexpr int row_pieces = rows / 8;  ///< 16-byte pieces of X per lane and chunk
constexpr int strip_columns = 8;
/// Rows of a tile. With fewer rows, factors are read more often per row.
constexpr std::int32_t few_rows = 32;
constexpr std::int32_t many_rows = 64;

/// 8 neighbouring columns of one target's S.
struct Strip {
    int target;  ///< -1 = no strip
    int column;
    int columns;
    std::int64_t copy_row;
    float scale;
    std::uint32_t dropout;
    std::uint64_t key;
    int place;  ///< number of its target among the targets of the strips
};

__device__ Strip find_strip(const LoraTables& tables, std::int32_t slot, int index) {
    for (int target = 0; target < tables.target_count; ++target) {
        const LoraSlotEntry& entry = tables.slots[target * tables.slot_count + slot];
        const int strips = (entry.rank + strip_columns - 1) / strip_columns;
        if (index < strips) {
            const int first = index * strip_columns;
            return {target,
                    entry.column + first,
                    min(strip_columns, entry.rank - first),
                    entry.copy_row + first,
                    entry.scale * dropout_scale(entry.dropout),
                    entry.dropout,
                    entry.dropout_key,
                    0};
        }
        index -= strips;
    }
    return {-1, 0, 0, 0, 0.0F, 0, 0, 0};
}

template <int rows>
__device__ void clear_other_columns(const LoraShrinkParams& p, const LoraTile& tile) {
    for (int target = 0; target < p.tables.target_count; ++target) {
        const Matrix& s = p.s[target];
        int own_begin = 0;
        int own_end = 0;
        if (tile.segment >= 0) {
            const LoraSlotEntry& entry = p.tables.slots[target * p.tables.slot_count + tile.slot];
            own_begin = entry.column;
            own_end = entry.column + entry.rank;
        }
        constexpr int threads_of_row = threads / rows;
        const int row = tile.begin + static_cast<int>(threadIdx.x) / threads_of_row;
        if (row >= tile.end) continue;
        const auto clear = [&](const Matrix& of) {
            clear_outside(static_cast<Bf16*>(of.data) + row * of.ld, static_cast<int>(of.cols),
                          own_begin, own_end, static_cast<int>(threadIdx.x) % threads_of_row,
                          threads_of_row);
        };
        clear(s);
        if (p.again[target].data != nullptr) clear(p.again[target]);
    }
}

/// A lane's pieces of a chunk: 8 columns of the rows g, g + 8, ...
template <int rows>
using RowPieces = uint4[row_pieces<rows>];

/// Copies columns of X (a tile's rows) and of the factor strips to a warp's own stage, `chunks` of
/// the two chunks of a line at a time. One chunk takes half as much shared memory.
template <int rows, int strip_count, int chunks>
struct Feeder {
    static constexpr int stages = 2;
    static constexpr int parts = 2 / chunks;  ///< steps for a line
    static constexpr int pieces = line_pieces / parts;
    static constexpr int stage_pieces = (rows + strip_count * strip_columns) * pieces;
    static constexpr int bytes = stages * stage_pieces * warps * 16;

    uint4* staging;  ///< of this warp
    const Bf16* x;   ///< first row of the tile
    std::int64_t ld;
    int columns;
    int valid_rows;
    const Bf16* factors[strip_count];  ///< null for strips that do not exist
    std::int64_t factor_ld;

    __device__ __forceinline__ uint4* rows_of(int stage) const {
        return staging + stage * stage_pieces;
    }
    __device__ __forceinline__ uint4* strip_of(int stage, int strip) const {
        return rows_of(stage) + (rows + strip * strip_columns) * pieces;
    }
    /// Place of a lane's 8 columns of chunk `chunk` in row g of the staged rows or of a strip.
    __device__ __forceinline__ static int place_of_lane(int chunk) {
        const int g = static_cast<int>(threadIdx.x) % 32 / 4;
        const int piece = chunk * 4 + static_cast<int>(threadIdx.x) % 4;
        return parts == 1 ? staged_piece(g, piece) : g * pieces + piece;
    }
    /// `place`: place_of_lane(), which repeats every 8 rows.
    __device__ __forceinline__ void load_rows(int stage, int place, RowPieces<rows>& x) const {
        const uint4* row = rows_of(stage) + place;
#pragma unroll
        for (int i = 0; i < row_pieces<rows>; ++i) x[i] = row[i * 8 * pieces];
    }
    template <int row_count>
    __device__ __forceinline__ static void copy(uint4* staged, const Bf16* source, std::int64_t ld,
                                                int valid_rows, int columns_left) {
        if constexpr (parts == 1) {
            copy_line_async<row_count>(staged, source, ld, valid_rows, columns_left);
        } else {
            copy_chunk_async<row_count>(staged, source, ld, valid_rows, columns_left);
        }
    }
    __device__ __forceinline__ void fetch(int stage, int line, int part) const {
        const int first = line * line_columns + part * pieces * 8;
        copy<rows>(rows_of(stage), x + first, ld, valid_rows, columns - first);
#pragma unroll
        for (int i = 0; i < strip_count; ++i) {
            if (factors[i] == nullptr) break;
            copy<strip_columns>(strip_of(stage, i), factors[i] + first, factor_ld, strip_columns,
                                line_columns);
        }
    }
};

/// dropout_row of the tile's rows for each target of the strips, and the target's keys; x is equal
/// for all targets.
template <int rows>
struct DropoutRows {
    DropoutKeys keys[max_lora_targets];
    std::uint32_t x[rows];
    uint2 yz[max_lora_targets][rows];

    __device__ __forceinline__ uint4 row(int target, int i) const {
        return make_uint4(x[i], yz[target][i].x, yz[target][i].y, 0);
    }
    __device__ __forceinline__ void set(int target, int i, const uint4& words) {
        x[i] = words.x;
        yz[target][i] = make_uint2(words.y, words.z);
    }
};

/// Computes the rows' part of dropout's counters, once for each target of the strips.
template <int rows, int strip_count>
__device__ __forceinline__ void stage_dropout_rows(const LoraTables& tables, const LoraTile& tile,
                                                   Strip* strips, DropoutRows<rows>& staged) {
    if (threadIdx.x < rows) {
        const int row = min(tile.begin + static_cast<int>(threadIdx.x), tile.end - 1);
        int place = -1;
        for (int i = 0; i < strip_count && strips[i].target >= 0; ++i) {
            if (i > 0 && strips[i].target == strips[i - 1].target) continue;
            staged.set(
                ++place, static_cast<int>(threadIdx.x),
                dropout_row(strips[i].key, static_cast<std::uint32_t>(tables.sample_ids[row]),
                            static_cast<std::uint32_t>(tables.positions[row])));
        }
    }
    if (threadIdx.x == 0) {
        staged.keys[0] = dropout_keys(strips[0].key);
        for (int i = 1; i < strip_count && strips[i].target >= 0; ++i) {
            strips[i].place =
                strips[i - 1].place + (strips[i].target == strips[i - 1].target ? 0 : 1);
            staged.keys[strips[i].place] = dropout_keys(strips[i].key);
        }
    }
    __syncthreads();
}

template <int rows, int strip_count>
using Sums = float[rows / 16][strip_count][4];

/// sums += X F of one strip and chunk.
template <int rows, int strip_count>
__device__ __forceinline__ void add_strip(const RowPieces<rows>& x, const uint4& f, int strip,
                                          Sums<rows, strip_count>& sums) {
#pragma unroll
    for (int m = 0; m < rows / 16; ++m) {
        const uint4& top = x[2 * m];
        const uint4& bottom = x[2 * m + 1];
        multiply_add(sums[m][strip], top.x, bottom.x, top.y, bottom.y, f.x, f.y);
        multiply_add(sums[m][strip], top.z, bottom.z, top.w, bottom.w, f.z, f.w);
    }
}

/// Adds chunk `chunk` of the stage, 32 columns.
template <int rows, int strip_count, int chunks>
__device__ __forceinline__ void add_chunk(const Feeder<rows, strip_count, chunks>& feeder,
                                          int stage, int chunk, Sums<rows, strip_count>& sums) {
    const int place = feeder.place_of_lane(chunk);
    RowPieces<rows> x;
    feeder.load_rows(stage, place, x);
#pragma unroll
    for (int strip = 0; strip < strip_count; ++strip) {
        if (feeder.factors[strip] == nullptr) break;
        add_strip<rows, strip_count>(x, feeder.strip_of(stage, strip)[place], strip, sums);
    }
}

/// Masks x by the dropout of a strip's target. `eight`: number of the 8 columns of X.
template <int rows>
__device__ __forceinline__ void keep_pieces(const Strip& strip, std::uint32_t step, int eight,
                                            const DropoutRows<rows>& dropout_rows,
                                            const RowPieces<rows>& x, RowPieces<rows>& kept) {
    const std::uint32_t threshold = strip.dropout;
    if (threshold == 0) {
        asm volatile("");  // else the compiler copies before this branch, in either case
#pragma unroll
        for (int i = 0; i < row_pieces<rows>; ++i) kept[i] = x[i];
        return;
    }
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int place = strip.place;
    const DropoutKeys keys = dropout_rows.keys[place];
    const uint4 column = dropout_column(strip.key, step, static_cast<std::uint32_t>(eight));
#pragma unroll
    for (int i = 0; i < row_pieces<rows>; ++i) {
        kept[i] =
            masked(x[i], dropout_bits(keys, dropout_rows.row(place, i * 8 + g), column), threshold);
    }
}

/// add_chunk() with dropout. `first_eight`: number of the 8 columns of X where the stage begins.
/// One loop for all strips, since unrolled draws are more code than the instruction caches hold.
/// Two strips of a target at once, since a branch waits for the products before it.
template <int rows, int strip_count, int chunks>
__device__ __forceinline__ void add_kept_chunk(const Feeder<rows, strip_count, chunks>& feeder,
                                               int stage, int chunk, const Strip* strips,
                                               const DropoutRows<rows>& dropout_rows,
                                               std::uint32_t step, int first_eight,
                                               Sums<rows, strip_count>& sums) {
    const int place = feeder.place_of_lane(chunk);
    const int eight = first_eight + chunk * 4 + static_cast<int>(threadIdx.x) % 4;
    RowPieces<rows> x;
    RowPieces<rows> kept;
    feeder.load_rows(stage, place, x);
    int kept_for = -1;
#pragma unroll 1
    for (int i = 0; i < strip_count;) {
        const Strip& strip = strips[i];
        const int target = strip.target;
        if (target < 0) break;
        if (target != kept_for) {
            kept_for = target;
            keep_pieces<rows>(strip, step, eight, dropout_rows, x, kept);
        }
        const uint4 f = feeder.strip_of(stage, i)[place];
        if (i % 2 == 0 && strips[i + 1].target == target) {
            const uint4 next = feeder.strip_of(stage, i + 1)[place];
#pragma unroll
            for (int j = 0; j < strip_count; j += 2) {
                if (j != i) continue;
                add_strip<rows, strip_count>(kept, f, j, sums);
                add_strip<rows, strip_count>(kept, next, j + 1, sums);
            }
            i += 2;
        } else {
#pragma unroll
            for (int j = 0; j < strip_count; ++j) {
                if (j == i) add_strip<rows, strip_count>(kept, f, j, sums);
            }
            ++i;
        }
    }
}

/// Adds the sums of the warps (each has a share of the columns of X) and writes S.
template <int rows, int strip_count>
__device__ __forceinline__ void write_sums(const LoraShrinkParams& p, const LoraTile& tile,
                                           const Strip* strips, const Sums<rows, strip_count>& sums,
                                           float* scratch) {
    constexpr int width = strip_count * strip_columns;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int m = 0; m < rows / 16; ++m) {
#pragma unroll
        for (int strip = 0; strip < strip_count; ++strip) {
            float* target =
                scratch + (warp * rows + m * 16 + g) * width + strip * strip_columns + 2 * q;
            *reinterpret_cast<float2*>(target) = make_float2(sums[m][strip][0], sums[m][strip][1]);
            *reinterpret_cast<float2*>(target + 8 * width) =
                make_float2(sums[m][strip][2], sums[m][strip][3]);
        }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < rows * width; i += threads) {
        const int row = i / width;
        const Strip& strip = strips[i % width / strip_columns];
        const int column = i % strip_columns;
        if (strip.target < 0 || column >= strip.columns || tile.begin + row >= tile.end) continue;
        float sum = 0.0F;
#pragma unroll
        for (int w = 0; w < warps; ++w) sum += scratch[w * rows * width + i];
        const auto value = from_float<Bf16>(strip.scale * sum);
        const auto store = [&](const Matrix& s) {
            static_cast<Bf16*>(s.data)[(tile.begin + row) * s.ld + strip.column + column] = value;
        };
        store(p.s[strip.target]);
        if (p.again[strip.target].data != nullptr) store(p.again[strip.target]);
    }
}

}  // namespace loratrain::kernels::shrink
