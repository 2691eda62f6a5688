#pragma once

#include "lora_columns.cuh"
#include "lora_wide_pass.cuh"

/// dS of slots of many ranks, and in the same launch the gradients of B. Both read dY: blocks of
/// one tile run at the same time, so that the second reads dY from the L2. Partial sums of dS go
/// through memory once for many columns, not for every block of the pass.
namespace loratrain::kernels::pass {

constexpr int ds_rows = wide_warps * block_rows;  ///< rows of a thread block

/// Shared memory of a thread block for dS: lines of dY, each warp's own rows, and B of a line in
/// two buffers.
template <int blocks>
struct WideDs {
    static constexpr int stages = 2;
    static constexpr int chunks = line_columns / chunk_columns;
    static constexpr int eights = blocks * block_ranks / 8;     ///< groups of 8 ranks
    static constexpr int turns = chunks * eights / wide_warps;  ///< turns of a warp for a line of B
    static constexpr int factor_pieces = chunks * eights * 32;
    static constexpr int factor_start = stages * wide_warps * stage_pieces;
    static constexpr int bytes = (factor_start + 2 * factor_pieces) * 16;
    static_assert(bytes <= least_shared_bytes);
};

/// A thread's part of B of one line while it is under way: in each turn 4 ranks of two neighbouring
/// columns.
template <int blocks>
struct FactorPart {
    float4 even[WideDs<blocks>::turns];
    float4 odd[WideDs<blocks>::turns];
};

/// Goes through B of a slot in one target, line by line, as B fragments of a chunk's two products,
/// [chunk][8 ranks][lane]. A warp has one chunk of a line, and 8 ranks of the chunk per turn.
template <int blocks, bool aligned>
struct FactorFeeder {
    static_assert(WideDs<blocks>::chunks == 2);
    static constexpr int turns = WideDs<blocks>::turns;
    static constexpr int turn_eights = wide_warps / 2;
    const float* b;  ///< this thread's first column and rank
    int rank;        ///< the slot's rank: the distance from one column to the next
    int ranks;       ///< number of ranks from this thread's first on
    int columns;     ///< number of columns from this thread's first on

    __device__ __forceinline__ FactorFeeder(const LoraSlotEntry& slot, const ColumnBlock& part,
                                            int first_rank) {
        const int warp = static_cast<int>(threadIdx.x) / 32;
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int column = warp % 2 * chunk_columns + lane % 16 * 2;
        const int own_rank = first_rank + warp / 2 * 8 + lane / 16 * 4;
        b = slot.b + static_cast<std::int64_t>(part.factor + column) * slot.rank + own_rank;
        rank = slot.rank;
        ranks = slot.rank - own_rank;
        columns = part.end - part.first - column;
    }
    /// Loads a line, and moves on to the next line.
    __device__ __forceinline__ void load(FactorPart<blocks>& part) {
        constexpr int turn_ranks = turn_eights * 8;
#pragma unroll
        for (int turn = 0; turn < turns; ++turn) {
            const int left = ranks - turn * turn_ranks;
            const float* source = b + turn * turn_ranks;
            part.even[turn] = four_of_factor<aligned>(source, 0, columns > 0 ? left : 0);
            part.odd[turn] = four_of_factor<aligned>(source + rank, 0, columns > 1 ? left : 0);
        }
        b += line_columns * rank;
        columns -= line_columns;
    }
    /// The upper lanes store their ranks in another order, so that no two lanes meet in a bank.
    __device__ __forceinline__ static void store(const FactorPart<blocks>& part, uint4* staged) {
        const int warp = static_cast<int>(threadIdx.x) / 32;
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const bool upper = lane >= 16;
        constexpr int eight_words = 32 * 4;
        constexpr int turn_words = turn_eights * eight_words;
        std::uint32_t* words = reinterpret_cast<std::uint32_t*>(staged) +
                               (warp % 2 * WideDs<blocks>::eights + warp / 2) * eight_words +
                               lane % 4 * 4 + lane % 16 / 8 * 2 + lane % 8 / 4;
        std::uint32_t* first = words + (upper ? 5 : 0) * 16;
        std::uint32_t* second = words + (upper ? 4 : 1) * 16;
#pragma unroll
        for (int turn = 0; turn < turns; ++turn) {
            const float4& even = part.even[turn];
            const float4& odd = part.odd[turn];
            const std::uint32_t packed[4] = {pack_halves(even.x, odd.x), pack_halves(even.y, odd.y),
                                             pack_halves(even.z, odd.z),
                                             pack_halves(even.w, odd.w)};
            first[turn * turn_words] = upper ? packed[1] : packed[0];
            second[turn * turn_words] = upper ? packed[0] : packed[1];
            first[turn * turn_words + 32] = upper ? packed[3] : packed[2];
            second[turn * turn_words + 32] = upper ? packed[2] : packed[3];
        }
    }
};

/// dS [32 rows, ranks] of a warp += dY B of one line.
template <int blocks>
__device__ __forceinline__ void add_line(const uint4* line, const uint4* factor, int block_count,
                                         float (&ds)[block_rows / 16][blocks * 2][4]) {
    constexpr int halves = block_rows / 16;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int chunk = 0; chunk < WideDs<blocks>::chunks; ++chunk) {
        std::uint32_t x[halves][2][4];
#pragma unroll
        for (int m = 0; m < halves; ++m) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int piece = chunk * 4 + h * 2 + lane / 16;
                load_fragment(line + staged_piece(m * 16 + lane % 16, piece), x[m][h]);
            }
        }
#pragma unroll
        for (int block = 0; block < blocks; ++block) {
            if (block < block_count) {
#pragma unroll
                for (int eight = block * 2; eight < block * 2 + 2; ++eight) {
                    const uint4 f = factor[(chunk * blocks * 2 + eight) * 32 + lane];
#pragma unroll
                    for (int m = 0; m < halves; ++m) {
                        multiply_add(ds[m][eight], x[m][0][0], x[m][0][1], x[m][0][2], x[m][0][3],
                                     f.x, f.y);
                        multiply_add(ds[m][eight], x[m][1][0], x[m][1][1], x[m][1][2], x[m][1][3],
                                     f.z, f.w);
                    }
                }
            }
        }
    }
}

/// Puts B of a line into its buffer, waits for dY of that line, and starts the next copies: dY of a
/// later line, B of the next line. Returns the buffer.
template <class Shape, int blocks, bool aligned, class Fetch>
__device__ __forceinline__ const uint4* next_line(FactorFeeder<blocks, aligned>& factors,
                                                  FactorPart<blocks>& part, int line, int lines,
                                                  uint4* staging, const Fetch& fetch) {
    uint4* factor = staging + Shape::factor_start + line % 2 * Shape::factor_pieces;
    factors.store(part, factor);
    wait_for_pieces<Shape::stages - 2>();
    __syncthreads();
    if (line + Shape::stages - 1 < lines) fetch(line + Shape::stages - 1);
    commit_pieces();
    if (line + 1 < lines) factors.load(part);
    return factor;
}

/// `part`: row 0 of the first rank block; `stride`: distance to the next rank block.
template <int blocks>
__device__ __forceinline__ void write_part(float* part, std::int64_t stride, int row, int end,
                                           int block_count,
                                           const float (&ds)[block_rows / 16][blocks * 2][4]) {
    const int first = row + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int i = 0; i < row_pieces; ++i) {
        if (first + i * 8 >= end) continue;
        float* target =
            part + static_cast<std::int64_t>(first + i * 8) * block_ranks + threadIdx.x % 4 * 2;
#pragma unroll
        for (int eight = 0; eight < blocks * 2; ++eight) {
            if (eight / 2 >= block_count) break;
            *reinterpret_cast<float2*>(target + eight / 2 * stride + eight % 2 * 8) =
                make_float2(ds[i / 2][eight][i % 2 * 2], ds[i / 2][eight][i % 2 * 2 + 1]);
        }
    }
}

__host__ __device__ inline int parts_of(const PassParams& p, const TargetColumns& columns) {
    return (static_cast<int>(columns.end - columns.begin) + p.part_columns - 1) / p.part_columns;
}

__host__ __device__ inline int parts_before(const PassParams& p, int target) {
    int parts = 0;
    for (int before = 0; before < target; ++before) parts += parts_of(p, columns_of(p, before));
    return parts;
}

/// The columns of part `index`, counted through all targets.
__device__ __forceinline__ ColumnBlock find_part(const PassParams& p, int index) {
    int target = 0;
    while (index >= parts_of(p, columns_of(p, target))) {
        index -= parts_of(p, columns_of(p, target++));
    }
    const TargetColumns columns = columns_of(p, target);
    const int factor = index * p.part_columns;
    return {target, static_cast<int>(columns.begin) + factor,
            static_cast<int>(min(columns.end, columns.begin + factor + p.part_columns)), factor};
}

/// dS of ds_rows rows of a tile from `row` on, for one part of the columns and one group of rank
/// blocks.
template <int blocks, bool aligned>
__device__ __forceinline__ void wide_ds(const PassParams& p, const LoraTile& tile,
                                        const LoraSlotEntry& slot, const ColumnBlock& columns,
                                        int row, int group, uint4* staging) {
    using Shape = WideDs<blocks>;
    const int first_rank = group * blocks * block_ranks;
    const int block_count = min(blocks, (slot.rank - first_rank + block_ranks - 1) / block_ranks);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int warp_row = row + warp * block_rows;
    const int column_count = columns.end - columns.first;
    const Bf16* x = static_cast<const Bf16*>(p.x.data) + warp_row * p.x.ld + columns.first;
    const auto line_at = [&](int line) {
        return staging + (line % Shape::stages * wide_warps + warp) * stage_pieces;
    };
    const auto fetch = [&](int line) {
        copy_line_async<block_rows>(line_at(line), x + line * line_columns, p.x.ld,
                                    tile.end - warp_row, column_count - line * line_columns);
    };
    const int lines = (column_count + line_columns - 1) / line_columns;
#pragma unroll
    for (int i = 0; i < Shape::stages - 1; ++i) {
        if (i < lines) fetch(i);
        commit_pieces();
    }
    FactorFeeder<blocks, aligned> factors(slot, columns, first_rank);
    FactorPart<blocks> part;
    factors.load(part);
    float ds[block_rows / 16][blocks * 2][4] = {};
    for (int line = 0; line < lines; ++line) {
        const uint4* factor = next_line<Shape>(factors, part, line, lines, staging, fetch);
        if (warp_row < tile.end) add_line<blocks>(line_at(line), factor, block_count, ds);
    }
    wait_for_pieces<0>();
    const std::int64_t of_part = p.x.rows * block_ranks;
    const std::int64_t stride = parts_before(p, p.tables.target_count) * of_part;
    const int part_index = parts_before(p, columns.target) + (columns.factor / p.part_columns);
    write_part<blocks>(p.ds + group * blocks * stride + part_index * of_part, stride, warp_row,
                       tile.end, block_count, ds);
}

/// blockIdx.x: dS of all parts and rows of a tile, then gradients of all column blocks, each for
/// all groups of rank blocks; blockIdx.y: the tile.
template <int blocks>
__global__ void __launch_bounds__(wide_threads, blocks_of_processor)
    wide_backward_kernel(PassParams p, int ds_blocks, int parts) {
    extern __shared__ uint4 staging[];
    let_next_kernel_start();
    wait_for_kernel_before();
    const LoraTile tile = p.tables.tiles[blockIdx.y];
    if (tile.segment < 0) return;
    const int group = rank_group_of_block(p);
    const int index = column_block_of_block(p);
    const bool of_ds = index < ds_blocks;
    const ColumnBlock columns =
        of_ds ? find_part(p, index % parts) : find_columns<true>(p, index - ds_blocks);
    if (!of_ds) {
        pass_wide<blocks, true>(p, tile, columns, group, staging);
        return;
    }
    const LoraSlotEntry& slot = p.tables.slots[columns.target * p.tables.slot_count + tile.slot];
    const int row = tile.begin + index / parts * ds_rows;
    if (row >= tile.end || slot.rank <= group * blocks * block_ranks) return;
    if (has_aligned_b(slot)) {
        wide_ds<blocks, true>(p, tile, slot, columns, row, group, staging);
    } else {
        wide_ds<blocks, false>(p, tile, slot, columns, row, group, staging);
    }
}

template <int blocks>
cudaError_t launch_wide_backward(cudaStream_t stream, PassParams p, int shared_limit) {
    constexpr int shared = std::max(Wide<blocks>::bytes, WideDs<blocks>::bytes);
    p.rank_groups = pieces(p.rank_blocks, blocks);
    const int parts = parts_before(p, p.tables.target_count);
    const int ds_blocks = parts * pieces(p.tables.tile_rows, ds_rows);
    const int column_blocks = column_blocks_before(p, p.tables.target_count);
    const dim3 grid(static_cast<unsigned>((ds_blocks + column_blocks) * p.rank_groups),
                    static_cast<unsigned>(p.tables.tile_count));
    return launch_with_shared<wide_backward_kernel<blocks>, shared>(
        stream, shared_limit, grid, wide_threads, p, ds_blocks, parts);
}

}  // namespace loratrain::kernels::pass
