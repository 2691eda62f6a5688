#pragma once

#include "kernels/dropout.cuh"
#include "kernels/tensor_core.cuh"
#include "lora_columns.cuh"
#include "lora_launch.h"
#include "lora_pass_tile.cuh"

/// Pieces of the kernel that adds S Bᵀ or dS A: the contents of shared memory, and the work of a
/// warp on a step of 32 rows.

namespace loratrain::kernels::expand {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int block_columns = warps * chunk_columns;
constexpr int blocks_of_processor = 2;
constexpr std::int32_t most_tile_rows = 512;
constexpr int step_rows = 32;  ///< rows that a warp handles at once
constexpr int block_ranks = 16;
constexpr int most_blocks = 20;  ///< rank blocks of one launch

/// Sums of a warp's 32 rows and 32 columns: [row block of 16][word w][..], where lane (g, q) holds
/// rows g and g + 8 and the columns 8q + 2w and 8q + 2w + 1.
using Sums = float[step_rows / 16][4][4];

struct Lane {
    int g;
    int q;
    int warp;
    std::int64_t column;  ///< first of the warp's 32 columns
};

/// What dropout needs of a target in every step.
struct DropoutTarget {
    DropoutKeys keys;
    uint4 columns[block_columns / 8];  ///< dropout_column
    std::uint64_t key;
    std::uint32_t threshold;
    float scale;  ///< 1/(1-p)
    int place;    ///< of its first rank block among the staged ones
    int blocks;
};

/// Shared memory of a block with `blocks` rank blocks of all targets together.
struct Staging {
    std::uint32_t* factors;        ///< [blocks][warps][4 words][2 halves][32 lanes], B fragments
    std::uint16_t* s;              ///< [buffers][blocks][step_rows][16]
    uint4* rows;                   ///< [2][targets][step_rows], dropout_row
    DropoutTarget* targets;        ///< [targets]
    pass::RankBlock* rank_blocks;  ///< [blocks]
    int s_buffer;                  ///< elements of a buffer of S
    int dropout_targets;

    static constexpr int factor_words = warps * 4 * 2 * 32;
    static constexpr int s_elements = step_rows * block_ranks;

    __host__ __device__ static constexpr int bytes(int blocks, int buffers, int dropout_targets) {
        return blocks * (factor_words * 4 + buffers * s_elements * 2 +
                         static_cast<int>(sizeof(pass::RankBlock))) +
               dropout_targets * (2 * step_rows * 16 + static_cast<int>(sizeof(DropoutTarget)));
    }
    __device__ Staging(uint4* memory, int blocks, int buffers, int dropout_targets)
        : factors(reinterpret_cast<std::uint32_t*>(memory)),
          s(reinterpret_cast<std::uint16_t*>(factors + blocks * factor_words)),
          rows(reinterpret_cast<uint4*>(s + buffers * blocks * s_elements)),
          targets(reinterpret_cast<DropoutTarget*>(rows + 2 * dropout_targets * step_rows)),
          rank_blocks(reinterpret_cast<pass::RankBlock*>(targets + dropout_targets)),
          s_buffer(blocks * s_elements),
          dropout_targets(dropout_targets) {}
    /// S of the rows of a step.
    __device__ std::uint16_t* s_of(int buffer) const { return s + buffer * s_buffer; }
    /// dropout_row of the rows of a step and of a target.
    __device__ uint4* rows_of(int buffer, int target) const {
        return rows + (buffer * dropout_targets + target) * step_rows;
    }
};

/// The rank blocks first .. first + count - 1 that a launch stages. `buffers` of S: 2, of which one
/// fills while the other is used, or 1.
struct BlockSpan {
    int first;
    int count;
    int buffers;
};

/// The rank blocks of a slot that this launch handles. `place`: of the first one among the staged
/// ones.
struct RankBlocks {
    int begin;
    int end;
    int place;

    __device__ int count() const { return max(0, end - begin); }
};

/// Goes through the targets of a slot. A launch has the rank blocks of `span`, counted through all
/// targets.
class Targets {
  public:
    __device__ Targets(const LoraExpandParams& p, const LoraTile& tile, const BlockSpan& span)
        : p_(p), slots_(p.tables.slots + tile.slot), staged_(span.count), place_(-span.first) {}
    __device__ const LoraSlotEntry& slot(int target) const {
        return slots_[target * p_.tables.slot_count];
    }
    __device__ RankBlocks next(int target) {
        const int blocks = (slot(target).rank + block_ranks - 1) / block_ranks;
        const int begin = max(0, -place_);
        const RankBlocks result{begin, min(blocks, staged_ - place_), place_ + begin};
        place_ += blocks;
        return result;
    }

  private:
    const LoraExpandParams& p_;
    const LoraSlotEntry* slots_;
    int staged_;
    int place_;
};

/// Number of rank blocks whose factors are copied at once.
constexpr int blocks_at_once = 2;

/// B fragments [16 ranks, 8 columns] of the four words of every warp, of `count` rank blocks from
/// `first` on. A warp reads 16 ranks of 8 columns at once, whole sectors, and fills every bank.
__device__ __forceinline__ void stage_b(const LoraExpandParams& p, const LoraSlotEntry& slot,
                                        int first, int count, const Lane& lane,
                                        std::uint32_t* target) {
    std::uint32_t* words =
        target + lane.warp * 4 * 2 * 32 + lane.q / 2 * 32 + lane.g * 4 + lane.q % 2 * 2;
    const float* columns =
        slot.b + (lane.column + lane.g / 2 * 8 + lane.g % 2) * slot.rank + first * block_ranks;
    const auto columns_left =
        static_cast<int>(p.y.cols - lane.column) - lane.g / 2 * 8 - lane.g % 2;
    for (int block = 0; block < count; block += blocks_at_once) {
        float4 values[blocks_at_once][4];
        const auto load_four = [&](auto aligned) {
#pragma unroll
            for (int i = 0; i < blocks_at_once; ++i) {
                const int rank = (first + block + i) * block_ranks;
#pragma unroll
                for (int w = 0; w < 4; ++w) {
                    const bool inside = block + i < count && 2 * w < columns_left;
                    values[i][w] = four_of_factor<aligned.value>(
                        columns + 2 * w * slot.rank + (block + i) * block_ranks, lane.q * 4,
                        inside ? slot.rank - rank : 0);
                }
            }
        };
        if (has_aligned_b(slot)) {
            load_four(std::true_type{});
        } else {
            load_four(std::false_type{});
        }
#pragma unroll
        for (int i = 0; i < blocks_at_once; ++i) {
            if (block + i >= count) break;
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                const float4& v = values[i][w];
                *reinterpret_cast<uint2*>(words + (block + i) * Staging::factor_words + w * 64) =
                    make_uint2(pack_halves(v.x, v.y), pack_halves(v.z, v.w));
            }
        }
    }
}

/// B fragments of A, which has `columns` columns; a thread fills one of them.
__device__ __forceinline__ void stage_a(std::int64_t columns, const LoraSlotEntry& slot, int first,
                                        int count, std::int64_t first_column,
                                        std::uint32_t* target) {
    const int column = static_cast<int>(threadIdx.x) % chunk_columns;
    const int g = column / 8 * 2 + column % 2;
    std::uint32_t* words =
        target + ((threadIdx.x / chunk_columns * 4 + column % 8 / 2) * 2) * 32 + g * 4;
    const bool inside = first_column + threadIdx.x < columns;
    for (int block = 0; block < count; block += blocks_at_once) {
        float values[blocks_at_once * block_ranks];
        const int rank = (first + block) * block_ranks;
        const int ranks = inside ? min(slot.rank, (first + count) * block_ranks) - rank : 0;
        const float* source = slot.a + rank * columns + first_column + threadIdx.x;
#pragma unroll
        for (int r = 0; r < blocks_at_once * block_ranks; ++r) {
            values[r] = r < ranks ? source[r * columns] : 0.0F;
        }
#pragma unroll
        for (int i = 0; i < blocks_at_once; ++i) {
            if (block + i >= count) break;
            std::uint32_t* word = words + (block + i) * Staging::factor_words;
#pragma unroll
            for (int pair = 0; pair < block_ranks / 2; ++pair) {
                const int r = i * block_ranks + 2 * pair;
                word[pair / 4 * 32 + pair % 4] = pack_halves(values[r], values[r + 1]);
            }
        }
    }
}

/// sums += S factor of one rank block.
__device__ __forceinline__ void add_block(const std::uint32_t* factors, const std::uint16_t* s,
                                          const Lane& lane, Sums& sums) {
    std::uint32_t a[step_rows / 16][4];
#pragma unroll
    for (int m = 0; m < step_rows / 16; ++m) load_block(s + m * 16 * block_ranks, a[m]);
    const std::uint32_t* fragments = factors + lane.warp * 4 * 2 * 32 + threadIdx.x % 32;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        const std::uint32_t b0 = fragments[w * 64];
        const std::uint32_t b1 = fragments[w * 64 + 32];
#pragma unroll
        for (int m = 0; m < step_rows / 16; ++m) {
            multiply_add(sums[m][w], a[m][0], a[m][1], a[m][2], a[m][3], b0, b1);
        }
    }
}

/// sums += S factor of one target; `factors` and `s` are its first rank block's.
template <int unrolled = 4>
__device__ __forceinline__ void add_product(const std::uint32_t* factors, const std::uint16_t* s,
                                            int blocks, const Lane& lane, Sums& sums) {
#pragma unroll unrolled
    for (int block = 0; block < blocks; ++block) {
        add_block(factors + block * Staging::factor_words, s + block * Staging::s_elements, lane,
                  sums);
    }
}

/// totals += what dropout keeps of `sums`, times 1/(1-p). `rows`: dropout_row of the step's.
__device__ __forceinline__ void add_kept_sums(const DropoutTarget& target, const uint4* rows,
                                              const Lane& lane, const Sums& sums, Sums& totals) {
    const DropoutKeys keys = target.keys;
    const uint4 column = target.columns[lane.warp * (chunk_columns / 8) + lane.q];
    const std::uint32_t threshold = target.threshold;
    const float scale = target.scale;
#pragma unroll
    for (int i = 0; i < step_rows / 8; ++i) {
        const uint4 bits = dropout_bits(keys, rows[i * 8 + lane.g], column);
        const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const float* values = &sums[i / 2][w][i % 2 * 2];
            float* added = &totals[i / 2][w][i % 2 * 2];
            add_kept(words[w], threshold, scale, values[0], values[1], added[0], added[1]);
        }
    }
}

/// Destination of a lane: 8 columns of its rows, if all 8 exist.
using Before = uint4[step_rows / 8];

/// A lane's 8 columns of Y.
struct LaneColumns {
    Bf16* y;  ///< of row 0
    std::int64_t ld;
    int count;  ///< number of the 8 columns that exist

    __device__ LaneColumns(const Matrix& matrix, const Lane& lane)
        : y(static_cast<Bf16*>(matrix.data) + lane.column + wide * lane.q),
          ld(matrix.ld),
          count(static_cast<int>(
              max(std::int64_t{0},
                  min(std::int64_t{wide}, matrix.cols - lane.column - wide * lane.q)))) {}
};

/// `first`: the lane's first row within the step.
__device__ __forceinline__ void load_before(const LaneColumns& columns, int first, int end,
                                            Before& before) {
    const Bf16* y = columns.y + first * columns.ld;
#pragma unroll
    for (int i = 0; i < step_rows / 8; ++i) {
        before[i] = make_uint4(0, 0, 0, 0);
        if (first + i * 8 < end) before[i] = *reinterpret_cast<const uint4*>(y);
        y += 8 * columns.ld;
    }
}

__device__ __forceinline__ void write_rows(const LaneColumns& columns, bool accumulate, int first,
                                           int end, const Before& before, const Sums& totals) {
    Bf16* y = columns.y + first * columns.ld;
#pragma unroll
    for (int i = 0; i < step_rows / 8; ++i, y += 8 * columns.ld) {
        if (first + i * 8 >= end) continue;
        float v[wide];
#pragma unroll
        for (int j = 0; j < wide; ++j) v[j] = totals[i / 2][j / 2][i % 2 * 2 + j % 2];
        if (columns.count == wide) {
            const std::uint32_t was[wide / 2] = {before[i].x, before[i].y, before[i].z,
                                                 before[i].w};
#pragma unroll
            for (int j = 0; j < wide / 2; ++j) {
                v[2 * j] += low_half(was[j]);
                v[2 * j + 1] += high_half(was[j]);
            }
            store_at_once(y, make_uint4(pack_halves(v[0], v[1]), pack_halves(v[2], v[3]),
                                        pack_halves(v[4], v[5]), pack_halves(v[6], v[7])));
            continue;
        }
#pragma unroll
        for (int j = 0; j < wide; ++j) {
            if (j >= columns.count) continue;
            y[j] = from_float<Bf16>(accumulate ? to_float(y[j]) + v[j] : v[j]);
        }
    }
}

/// Stages what all rows of the tile use.
template <bool with_dropout>
__device__ __forceinline__ void stage_targets(const LoraExpandParams& p, const LoraTile& tile,
                                              const BlockSpan& span, std::int64_t first_column,
                                              const Lane& lane, const Staging& staging) {
    Targets targets(p, tile, span);
    for (int target = 0; target < p.tables.target_count; ++target) {
        const LoraSlotEntry& slot = targets.slot(target);
        const RankBlocks blocks = targets.next(target);
        std::uint32_t* factors = staging.factors + blocks.place * Staging::factor_words;
        if (p.of_a) {
            stage_a(p.y.cols, slot, blocks.begin, blocks.count(), first_column, factors);
        } else {
            stage_b(p, slot, blocks.begin, blocks.count(), lane, factors);
        }
        if constexpr (with_dropout) {
            DropoutTarget& staged = staging.targets[target];
            if (threadIdx.x < block_columns / 8) {
                staged.columns[threadIdx.x] = pass::dropout_of_columns(
                    p.tables, tile, slot.dropout_key,
                    static_cast<std::uint32_t>(first_column / 8) + threadIdx.x);
            }
            if (threadIdx.x == 0) {
                staged.keys = dropout_keys(slot.dropout_key);
                staged.key = slot.dropout_key;
                staged.threshold = slot.dropout;
                staged.scale = dropout_scale(slot.dropout);
                staged.place = blocks.place;
                staged.blocks = blocks.count();
            }
        }
    }
}

/// Stages dropout_row of a step's rows; warp i does target i. `id`: of the lane's row.
static_assert(max_lora_targets <= warps && step_rows == 32);
__device__ __forceinline__ void stage_dropout_rows(const Staging& staging, int buffer, int warp,
                                                   std::uint64_t key, const pass::RowId& id) {
    staging.rows_of(buffer, warp)[threadIdx.x % 32] = pass::dropout_of_row(key, id);
}

/// Begins to stage S of the rows from `row` on: 8 ranks of one row per thread and turn, 0 outside.
__device__ __forceinline__ void stage_rows(const pass::RankBlock* rank_blocks, int count, int row,
                                           int end, std::uint16_t* s) {
    constexpr int threads_of_block = step_rows * 2;
    const int piece = static_cast<int>(threadIdx.x) % threads_of_block;
    for (int b = static_cast<int>(threadIdx.x) / threads_of_block; b < count;
         b += threads / threads_of_block) {
        pass::stage_s_piece(reinterpret_cast<uint4*>(s + b * Staging::s_elements) + piece,
                            rank_blocks[b], row + piece / 2, end, piece % 2);
    }
    commit_pieces();
}

/// Sums of the staged rows of slots that drop, target by target. `row_buffer`: of dropout_row.
__device__ __forceinline__ void add_targets(const Lane& lane, const Staging& staging,
                                            const std::uint16_t* staged_s, int row_buffer,
                                            Sums& totals) {
#pragma unroll 1
    for (int i = 0; i < staging.dropout_targets; ++i) {
        const DropoutTarget& target = staging.targets[i];
        const std::uint32_t* factors = staging.factors + target.place * Staging::factor_words;
        const std::uint16_t* s = staged_s + target.place * Staging::s_elements;
        const int blocks = target.blocks;
        if (blocks == 0) continue;
        if (target.threshold == 0) {
            add_product<1>(factors, s, blocks, lane, totals);
            continue;
        }
        Sums sums = {};
        add_block(factors, s, lane, sums);
        add_product<1>(factors + Staging::factor_words, s + Staging::s_elements, blocks - 1, lane,
                       sums);
        add_kept_sums(target, staging.rows_of(row_buffer, i), lane, sums, totals);
    }
}

/// Records the rank blocks of `span` of a tile's slot; returns their number.
__device__ __forceinline__ int find_span(const LoraExpandParams& p, const LoraTile& tile,
                                         const BlockSpan& span, pass::RankBlock* rank_blocks) {
    bool found = false;
    if (static_cast<int>(threadIdx.x) < span.count) {
        rank_blocks[threadIdx.x] =
            pass::find_block(p.tables, p.s, tile.slot, span.first + static_cast<int>(threadIdx.x),
                             0, p.tables.target_count);
        found = rank_blocks[threadIdx.x].ranks > 0;
    }
    return __syncthreads_count(found ? 1 : 0);
}

}  // namespace loratrain::kernels::expand
