#include <algorithm>

#include "dropout.cuh"
#include "launch.cuh"
#include "lora_columns.cuh"
#include "lora_tensor.h"
#include "tensor_core.cuh"

namespace loratrain::kernels {

namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int block_columns = 256;  ///< features that one thread block sweeps
constexpr int block_rows = 32;      ///< tokens that a warp takes at once
constexpr int block_ranks = 16;
constexpr int row_pieces = block_rows / 8;
constexpr int stage_pieces = block_rows * line_pieces;  ///< of one warp, 16 bytes each
constexpr int chunk_pieces = block_rows * 4;            ///< of a chunk after dropout
constexpr int s_pieces = block_rows * 2;                ///< of one warp and rank block
constexpr int scratch_ld = block_columns + 4;

int pieces(std::int64_t count, std::int64_t size) {
    return static_cast<int>((count + size - 1) / size);
}

/// 16 neighbouring ranks of one target.
struct RankBlock {
    int first;               ///< first rank
    int ranks;               ///< 0: none
    const std::uint16_t* s;  ///< row 0 of `first` in S
    std::int64_t s_ld;
    bool aligned;  ///< S can be read in pieces of 16 bytes
    std::uint32_t dropout;
    std::uint64_t key;
};

__device__ RankBlock find_block(const LoraTables& tables, const Matrix* s, std::int32_t slot,
                                int index) {
    for (int target = 0; target < tables.target_count; ++target) {
        const LoraSlotEntry& entry = tables.slots[target * tables.slot_count + slot];
        const int blocks = (entry.rank + block_ranks - 1) / block_ranks;
        if (index < blocks) {
            const int first = index * block_ranks;
            const auto* start =
                static_cast<const std::uint16_t*>(s[target].data) + entry.column + first;
            const bool aligned =
                reinterpret_cast<std::uintptr_t>(start) % 16 == 0 && s[target].ld % 8 == 0;
            return {first,
                    min(block_ranks, entry.rank - first),
                    start,
                    s[target].ld,
                    aligned,
                    entry.dropout,
                    entry.dropout_key};
        }
        index -= blocks;
    }
    return {0, 0, nullptr, 0, false, 0, 0};
}

/// What both gradients of a linear need from one pass over X or dY:
///   with_ds = false (grad_a): partial sums over a tile's rows of Sᵀ drop(X);
///   with_ds = true (grad_b): the same of Sᵀ dY, and of dY B over this block's columns.
struct SweepParams {
    Matrix x;
    Matrix s[max_lora_targets];
    LoraTables tables;
    int rank_blocks;   ///< of every slot, at most
    float* gradients;  ///< grad_a: [tiles, rank_blocks, 16, cols], grad_b: [..., cols, 16]
    float* ds;         ///< [rank_blocks, column blocks, T, 16]
};

/// How the 8 warps share rows and columns: `blocks` rank blocks need registers for their sums.
template <int blocks, bool with_ds, bool with_dropout>
struct Split {
    static constexpr int stages = with_dropout ? 3 : 4;  ///< also of S, a row block each
    static constexpr int column_warps = with_ds ? 1 : blocks == 1 ? 2 : 4;
    static constexpr int row_warps = warps / column_warps;
    static constexpr int chunks = block_columns / chunk_columns / column_warps;
    static constexpr int lines = chunks / 2;
    static constexpr int s_start = stages * stage_pieces;
    static constexpr int masked_start = s_start + stages * blocks * s_pieces;
    static constexpr int warp_pieces = masked_start + (with_dropout ? chunk_pieces : 0);
    static constexpr int scratch_bytes = row_warps * blocks * block_ranks * scratch_ld * 4;
    static constexpr int bytes = std::max(warps * warp_pieces * 16, scratch_bytes);
};

/// 8 ranks of one row of S to shared memory, 0 outside the block and from `end` on.
__device__ __forceinline__ void stage_s_piece(uint4* staged, const RankBlock& block, int row,
                                              int end, int half) {
    const int ranks = row < end ? min(8, max(0, block.ranks - half * 8)) : 0;
    const auto* source = ranks == 0 ? block.s : block.s + row * block.s_ld + half * 8;
    if (block.aligned) {
        copy_piece_async(staged, source, ranks * 2);
        return;
    }
    auto* target = reinterpret_cast<std::uint16_t*>(staged);
    for (int i = 0; i < 8; ++i) target[i] = i < ranks ? source[i] : std::uint16_t{0};
}

/// Brings rows of X, a line of 64 columns per step, and of S to a warp's own stage; step i is line
/// i % lines of row block i / lines.
template <class Shape, int blocks>
struct Feeder {
    uint4* staging;  ///< of this warp
    const Bf16* x;   ///< first row and column of this warp
    std::int64_t ld;
    int columns;  ///< from this warp's first to the last of X
    int first_row;
    int end_row;
    const RankBlock* rank_blocks;

    __device__ __forceinline__ uint4* stage_of(int step) const {
        return staging + step % Shape::stages * stage_pieces;
    }
    __device__ __forceinline__ uint4* s_of(int row_block, int block) const {
        return staging + Shape::s_start + (row_block % Shape::stages * blocks + block) * s_pieces;
    }
    __device__ __forceinline__ uint4* masked() const { return staging + Shape::masked_start; }
    __device__ __forceinline__ void fetch(int step) const {
        const int row_block = step / Shape::lines;
        const int first = step % Shape::lines * line_columns;
        const int down = row_block * Shape::row_warps * block_rows;
        copy_line_async<block_rows>(stage_of(step), x + down * ld + first, ld,
                                    end_row - first_row - down, columns - first);
        if (step % Shape::lines == 0) fetch_s(row_block, first_row + down);
    }
    __device__ __forceinline__ void fetch_s(int row_block, int row) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
            if (rank_blocks[b].ranks == 0) break;
#pragma unroll
            for (int i = 0; i < s_pieces / 32; ++i) {
                const int piece = i * 32 + lane;
                stage_s_piece(s_of(row_block, b) + piece, rank_blocks[b], row + piece / 2, end_row,
                              piece % 2);
            }
        }
    }
};

/// B of 16 ranks and this block's columns in bf16, as B fragments: [chunk][rank half][lane].
__device__ void stage_factor(const SweepParams& p, const LoraSlotEntry& slot,
                             const RankBlock& block, std::int64_t first_column, Bf16* staged) {
    for (int i = static_cast<int>(threadIdx.x); i < block_columns * block_ranks; i += threads) {
        const int rank = i % block_ranks;
        const int column = i / block_ranks;
        const bool valid = rank < block.ranks && first_column + column < p.x.cols;
        const float value =
            valid ? slot.b[(first_column + column) * slot.rank + block.first + rank] : 0.0F;
        const int lane = rank % 8 * 4 + column % chunk_columns / 8;
        const int fragment = (column / chunk_columns * 2 + rank / 8) * 32 + lane;
        staged[fragment * 8 + column % 8] = from_float<Bf16>(value);
    }
}

/// What dropout needs of a lane's rows first_row, first_row + 8, ...
template <int blocks>
__device__ __forceinline__ void find_dropout_rows(const SweepParams& p,
                                                  const RankBlock (&rank_blocks)[blocks],
                                                  int first_row, int end_row,
                                                  uint4 (&rows)[blocks][row_pieces]) {
#pragma unroll
    for (int i = 0; i < row_pieces; ++i) {
        const int row = min(first_row + i * 8, end_row - 1);
        const auto sample = static_cast<std::uint32_t>(p.tables.sample_ids[row]);
        const auto position = static_cast<std::uint32_t>(p.tables.positions[row]);
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
            rows[b][i] = dropout_row(rank_blocks[b].key, sample, position);
        }
    }
}

/// A lane's pieces of a chunk, half `half` of a staged line: rows g, g + 8, ..., columns 8q ...
__device__ __forceinline__ void load_rows(const uint4* staged, int half, uint4 (&x)[row_pieces]) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < row_pieces; ++i) x[i] = staged[staged_piece(i * 8 + g, half * 4 + q)];
}

/// Where a chunk of 4 pieces per row lies after dropout, permuted like staged_piece.
__device__ __forceinline__ int masked_piece(int row, int piece) {
    return row * 4 + (piece ^ row / 2 % 4);
}

/// Writes what dropout keeps of a chunk for all lanes to read; `column`: first of this lane.
__device__ __forceinline__ void mask_rows(const RankBlock& block, std::uint32_t step, int column,
                                          const uint4 (&rows)[row_pieces], const uint4* staged,
                                          int half, uint4* kept) {
    const uint4 columns = dropout_column(block.key, step, static_cast<std::uint32_t>(column / 8));
    uint4 x[row_pieces];
    load_rows(staged, half, x);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < row_pieces; ++i) {
        if (block.dropout > 0) {
            x[i] = masked(x[i], dropout_bits(block.key, rows[i], columns), block.dropout);
        }
        kept[masked_piece(i * 8 + static_cast<int>(threadIdx.x) % 32 / 4,
                          static_cast<int>(threadIdx.x) % 4)] = x[i];
    }
    __syncwarp();
}

/// B fragments of a chunk of X: [row block of 16][columns 8w ..][rows 0-7 and 8-15].
using Columns = std::uint32_t[block_rows / 16][4][2];

/// `piece_at(row, piece)`: where the 16 bytes of columns 8 piece .. 8 piece + 7 are.
template <class PieceAt>
__device__ __forceinline__ void load_columns(const PieceAt& piece_at, Columns& columns) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < block_rows / 16; ++m) {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
            std::uint32_t blocks[4];
            load_transposed(piece_at(m * 16 + lane % 16, pair * 2 + lane / 16), blocks);
            columns[m][2 * pair][0] = blocks[0];
            columns[m][2 * pair][1] = blocks[1];
            columns[m][2 * pair + 1][0] = blocks[2];
            columns[m][2 * pair + 1][1] = blocks[3];
        }
    }
}

/// sums [16 ranks, 32 columns] += Sᵀ X.
__device__ __forceinline__ void add_outer(const std::uint32_t (&s)[block_rows / 16][4],
                                          const Columns& columns, float (&sums)[4][4]) {
#pragma unroll
    for (int m = 0; m < block_rows / 16; ++m) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            multiply_add(sums[w], s[m][0], s[m][1], s[m][2], s[m][3], columns[m][w][0],
                         columns[m][w][1]);
        }
    }
}

/// Adds the row warps' sums and writes this tile's partial gradients.
template <class Shape, int blocks, bool with_ds>
__device__ __forceinline__ void write_gradients(const SweepParams& p, std::int64_t first_column,
                                                int block_count,
                                                const float (&sums)[blocks][Shape::chunks][4][4],
                                                float* scratch) {
    constexpr int ranks = blocks * block_ranks;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
    const int row_warp = warp / Shape::column_warps;
    const int left = warp % Shape::column_warps * Shape::chunks * chunk_columns;
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
        for (int c = 0; c < Shape::chunks; ++c) {
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                float* target = scratch + (row_warp * ranks + b * block_ranks + g) * scratch_ld +
                                left + c * chunk_columns + 8 * w + 2 * q;
                *reinterpret_cast<float2*>(target) =
                    make_float2(sums[b][c][w][0], sums[b][c][w][1]);
                *reinterpret_cast<float2*>(target + 8 * scratch_ld) =
                    make_float2(sums[b][c][w][2], sums[b][c][w][3]);
            }
        }
    }
    __syncthreads();
    const std::int64_t first_block =
        static_cast<std::int64_t>(blockIdx.y) * p.rank_blocks + blockIdx.z * blocks;
    for (int i = static_cast<int>(threadIdx.x); i < block_count * block_ranks * block_columns;
         i += threads) {
        const int rank = with_ds ? i % block_ranks : i / block_columns;
        const int column = with_ds ? i / block_ranks : i % block_columns;
        if (first_column + column >= p.x.cols) continue;
        float sum = 0.0F;
#pragma unroll
        for (int w = 0; w < Shape::row_warps; ++w) {
            sum += scratch[(w * ranks + rank) * scratch_ld + column];
        }
        const std::int64_t at =
            with_ds ? (first_block * p.x.cols + first_column + column) * block_ranks + rank
                    : (first_block * block_ranks + rank) * p.x.cols + first_column + column;
        p.gradients[at] = sum;
    }
}

/// dS [32, 16] of a row block += dY B of one chunk of columns.
__device__ __forceinline__ void add_ds(const uint4* factor, int chunk, const uint4 (&x)[row_pieces],
                                       float (&ds)[block_rows / 16][2][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const uint4 f = factor[(chunk * 2 + half) * 32 + threadIdx.x % 32];
#pragma unroll
        for (int m = 0; m < block_rows / 16; ++m) {
            const uint4& top = x[2 * m];
            const uint4& bottom = x[2 * m + 1];
            multiply_add(ds[m][half], top.x, bottom.x, top.y, bottom.y, f.x, f.y);
            multiply_add(ds[m][half], top.z, bottom.z, top.w, bottom.w, f.z, f.w);
        }
    }
}

/// `row`: of this lane, the first of the row block.
__device__ __forceinline__ void write_ds(const SweepParams& p, int row, int end,
                                         const float (&ds)[block_rows / 16][2][4]) {
    const auto part = static_cast<std::int64_t>(blockIdx.z * gridDim.x + blockIdx.x);
    float* target = p.ds + (part * p.x.rows + row) * block_ranks + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < row_pieces; ++i) {
        if (row + i * 8 >= end) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            *reinterpret_cast<float2*>(target + i * 8 * block_ranks + half * 8) =
                make_float2(ds[i / 2][half][i % 2 * 2], ds[i / 2][half][i % 2 * 2 + 1]);
        }
    }
}

template <int blocks, bool with_ds, bool with_dropout>
__global__ void __launch_bounds__(threads, 1) sweep_kernel(SweepParams p) {
    using Shape = Split<blocks, with_ds, with_dropout>;
    extern __shared__ uint4 staging[];
    __shared__ RankBlock rank_blocks[blocks];
    __shared__ uint4 factor[with_ds ? block_columns / chunk_columns * 2 * 32 : 1];
    const LoraTile tile = p.tables.tiles[blockIdx.y];
    if (tile.segment < 0) return;
    if (threadIdx.x < blocks) {
        rank_blocks[threadIdx.x] = find_block(p.tables, p.s, tile.slot,
                                              static_cast<int>(blockIdx.z * blocks + threadIdx.x));
    }
    __syncthreads();
    int block_count = 0;
#pragma unroll
    for (int b = 0; b < blocks; ++b) block_count += rank_blocks[b].ranks > 0 ? 1 : 0;
    if (block_count == 0) return;

    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
    const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * block_columns;
    const int warp_column =
        static_cast<int>(first_column) + warp % Shape::column_warps * Shape::chunks * chunk_columns;
    const int first_row = tile.begin + warp / Shape::column_warps * block_rows;
    Feeder<Shape, blocks> feeder;
    feeder.staging = staging + warp * Shape::warp_pieces;
    feeder.x = static_cast<const Bf16*>(p.x.data) + first_row * p.x.ld + warp_column;
    feeder.ld = p.x.ld;
    feeder.columns = static_cast<int>(p.x.cols) - warp_column;
    feeder.first_row = first_row;
    feeder.end_row = tile.end;
    feeder.rank_blocks = rank_blocks;
    constexpr int rows_apart = Shape::row_warps * block_rows;
    const int row_blocks = max(0, (tile.end - first_row + rows_apart - 1) / rows_apart);
    const int steps = row_blocks * Shape::lines;
#pragma unroll
    for (int i = 0; i < Shape::stages; ++i) {
        if (i < steps) feeder.fetch(i);
        commit_pieces();
    }
    if constexpr (with_ds) {
        stage_factor(p, p.tables.slots[tile.slot], rank_blocks[0], first_column,
                     reinterpret_cast<Bf16*>(factor));
        __syncthreads();
    }

    const std::uint32_t step_of_rows = with_dropout ? p.tables.segments[tile.segment].step : 0;
    float sums[blocks][Shape::chunks][4][4] = {};
    for (int row_block = 0; row_block < row_blocks; ++row_block) {
        const int row = first_row + row_block * rows_apart;
        std::uint32_t s[blocks][block_rows / 16][4] = {};
        float ds[block_rows / 16][2][4] = {};
        uint4 dropout_rows[blocks][row_pieces];
        if (with_dropout) {
            find_dropout_rows<blocks>(p, rank_blocks, row + g, tile.end, dropout_rows);
        }
#pragma unroll
        for (int line = 0; line < Shape::lines; ++line) {
            const int step = row_block * Shape::lines + line;
            wait_for_pieces<Shape::stages - 1>();
            __syncwarp();
#pragma unroll
            for (int b = 0; line == 0 && b < blocks; ++b) {
                if (rank_blocks[b].ranks == 0) continue;
#pragma unroll
                for (int m = 0; m < block_rows / 16; ++m) {
                    load_transposed_block(feeder.s_of(row_block, b) + m * 32, s[b][m]);
                }
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int chunk = line * 2 + half;
                const uint4* staged = feeder.stage_of(step);
                if constexpr (with_ds) {
                    uint4 x[row_pieces];
                    load_rows(staged, half, x);
                    add_ds(factor, chunk, x, ds);
                }
                Columns columns;
                if constexpr (!with_dropout) {
                    load_columns(
                        [&](int r, int piece) {
                            return staged + staged_piece(r, half * 4 + piece);
                        },
                        columns);
                }
#pragma unroll
                for (int b = 0; b < blocks; ++b) {
                    if constexpr (with_dropout) {
                        mask_rows(rank_blocks[b], step_of_rows,
                                  warp_column + chunk * chunk_columns + 8 * q, dropout_rows[b],
                                  staged, half, feeder.masked());
                        load_columns(
                            [&](int r, int piece) {
                                return feeder.masked() + masked_piece(r, piece);
                            },
                            columns);
                    }
                    add_outer(s[b], columns, sums[b][chunk]);
                }
            }
            __syncwarp();
            if (step + Shape::stages < steps) feeder.fetch(step + Shape::stages);
            commit_pieces();
        }
        if constexpr (with_ds) write_ds(p, row + g, tile.end, ds);
    }
    wait_for_pieces<0>();
    __syncthreads();
    write_gradients<Shape, blocks, with_ds>(p, first_column, block_count, sums,
                                            reinterpret_cast<float*>(staging));
}

__global__ void __launch_bounds__(threads) finish_grad_a(SweepParams p) {
    const auto slot_index = static_cast<std::int32_t>(blockIdx.z % p.tables.slot_count);
    const LoraSlotEntry& slot = p.tables.slots[blockIdx.z];
    const int rank = static_cast<int>(blockIdx.y);
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    if (rank >= slot.rank || column >= p.x.cols) return;
    std::int64_t block = rank / block_ranks;
    for (unsigned i = 0; i < blockIdx.z / p.tables.slot_count; ++i) {
        block += (p.tables.slots[i * p.tables.slot_count + slot_index].rank + block_ranks - 1) /
                 block_ranks;
    }
    const std::int64_t stride = static_cast<std::int64_t>(p.rank_blocks) * block_ranks * p.x.cols;
    const float* part =
        p.gradients + (block * block_ranks + rank % block_ranks) * p.x.cols + column;
    float sum = 0.0F;
#pragma unroll 8
    for (int tile = 0; tile < p.tables.tile_count; ++tile) {
        if (p.tables.tiles[tile].slot == slot_index) sum += part[tile * stride];
    }
    slot.grad_a[rank * p.x.cols + column] += sum * dropout_scale(slot.dropout);
}

constexpr int group_ranks = 4;  ///< that one thread of finish_backward adds up
constexpr int groups_of_block = block_ranks / group_ranks;

/// Sum of part[i * stride] over the i < count that `wanted` accepts; 8 loads at a time.
template <class Wanted>
__device__ __forceinline__ float4 sum_of_groups(const float* part, std::int64_t stride, int count,
                                                const Wanted& wanted) {
    constexpr int batch = 8;
    float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    for (int first = 0; first < count; first += batch) {
        float4 terms[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            terms[i] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
            if (first + i < count && wanted(first + i)) {
                terms[i] = *reinterpret_cast<const float4*>(part + (first + i) * stride);
            }
        }
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            sum.x += terms[i].x;
            sum.y += terms[i].y;
            sum.z += terms[i].z;
            sum.w += terms[i].w;
        }
    }
    return sum;
}

struct EveryPart {
    __device__ bool operator()(int) const { return true; }
};
struct TilesOfSlot {
    const LoraTile* tiles;
    int slot;
    __device__ bool operator()(int i) const { return tiles[i].slot == slot; }
};

/// Four ranks of dS, and a quarter of the row's columns of other slots. i counts the groups of 4
/// ranks of all rows of one rank block.
__device__ __forceinline__ void finish_ds(const SweepParams& p, const Matrix& ds, int rank_block,
                                          int i) {
    const int row = i / groups_of_block;
    const int group = i % groups_of_block;
    if (row >= ds.rows) return;
    int slot_index = -1;
    for (int g = 0; g < p.tables.segment_count; ++g) {
        const LoraSegmentEntry& segment = p.tables.segments[g];
        if (row >= segment.begin && row < segment.end) slot_index = segment.slot;
    }
    auto* target = static_cast<Bf16*>(ds.data) + row * ds.ld;
    const LoraSlotEntry* slot = slot_index < 0 ? nullptr : p.tables.slots + slot_index;
    const int begin = slot == nullptr ? 0 : slot->column;
    const int end = slot == nullptr ? 0 : begin + slot->rank;
    if (rank_block == 0) {
        clear_outside(target, static_cast<int>(ds.cols), begin, end, group, groups_of_block);
    }
    const int first = rank_block * block_ranks + group * group_ranks;
    if (slot == nullptr || first >= slot->rank) return;
    const int parts = (static_cast<int>(p.x.cols) + block_columns - 1) / block_columns;
    const std::int64_t stride = p.x.rows * block_ranks;
    const float* part = p.ds + rank_block * parts * stride +
                        static_cast<std::int64_t>(row) * block_ranks + group * group_ranks;
    const float4 sum = sum_of_groups(part, stride, parts, EveryPart{});
    const float values[group_ranks] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int j = 0; j < group_ranks; ++j) {
        if (first + j < slot->rank) {
            target[begin + first + j] = from_float<Bf16>(slot->scale * values[j]);
        }
    }
}

/// Four ranks of one row of the gradient of B. i counts the groups of 4 ranks of all rows.
__device__ __forceinline__ void finish_grad_b(const SweepParams& p, int slot_index, int rank_block,
                                              int i) {
    const LoraSlotEntry& slot = p.tables.slots[slot_index];
    const int row = i / groups_of_block;
    const int group = i % groups_of_block;
    const int first = rank_block * block_ranks + group * group_ranks;
    if (row >= p.x.cols || first >= slot.rank) return;
    const std::int64_t stride = static_cast<std::int64_t>(p.rank_blocks) * p.x.cols * block_ranks;
    const float* part =
        p.gradients + (rank_block * p.x.cols + row) * block_ranks + group * group_ranks;
    const float4 sum =
        sum_of_groups(part, stride, p.tables.tile_count, TilesOfSlot{p.tables.tiles, slot_index});
    const float values[group_ranks] = {sum.x, sum.y, sum.z, sum.w};
    float* target = slot.grad_b + static_cast<std::int64_t>(row) * slot.rank + first;
#pragma unroll
    for (int j = 0; j < group_ranks; ++j) {
        if (first + j < slot.rank) target[j] += values[j];
    }
}

/// blockIdx.y: rank block; blockIdx.z = 0: dS, z > 0: the gradient of B of slot z - 1.
__global__ void __launch_bounds__(threads) finish_backward(SweepParams p, Matrix ds) {
    const int i = static_cast<int>(blockIdx.x * threads + threadIdx.x);
    const int rank_block = static_cast<int>(blockIdx.y);
    if (blockIdx.z == 0) {
        finish_ds(p, ds, rank_block, i);
    } else {
        finish_grad_b(p, static_cast<int>(blockIdx.z) - 1, rank_block, i);
    }
}

template <int blocks, bool with_ds, bool with_dropout>
cudaError_t launch_sweep(cudaStream_t stream, const SweepParams& p) {
    constexpr int shared = Split<blocks, with_ds, with_dropout>::bytes;
    const auto kernel = sweep_kernel<blocks, with_ds, with_dropout>;
    static const cudaError_t raised =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (raised != cudaSuccess) return raised;
    const dim3 grid(static_cast<unsigned>(pieces(p.x.cols, block_columns)),
                    static_cast<unsigned>(p.tables.tile_count),
                    static_cast<unsigned>(pieces(p.rank_blocks, blocks)));
    kernel<<<grid, threads, shared, stream>>>(p);
    return cudaGetLastError();
}

template <bool with_dropout>
cudaError_t launch_grad_a(cudaStream_t stream, const SweepParams& p) {
    switch (p.rank_blocks) {
        case 1:
            return launch_sweep<1, false, with_dropout>(stream, p);
        case 2:
            return launch_sweep<2, false, with_dropout>(stream, p);
        default:
            return launch_sweep<3, false, with_dropout>(stream, p);
    }
}

SweepParams grad_a_sweep(const LoraGradAParams& p) {
    SweepParams sweep{};
    sweep.x = p.x;
    for (int i = 0; i < p.tables.target_count; ++i) sweep.s[i] = p.ds[i];
    sweep.tables = p.tables;
    sweep.rank_blocks = p.tables.largest_rank_sum / block_ranks;
    sweep.gradients = static_cast<float*>(p.workspace);
    return sweep;
}

SweepParams backward_sweep(const LoraBackwardParams& p) {
    SweepParams sweep{};
    sweep.x = p.dy;
    sweep.s[0] = p.s;
    sweep.tables = p.tables;
    sweep.rank_blocks = p.tables.largest_rank_sum / block_ranks;
    sweep.gradients = static_cast<float*>(p.workspace);
    sweep.ds = sweep.gradients + static_cast<std::int64_t>(p.tables.tile_count) *
                                     sweep.rank_blocks * block_ranks * p.dy.cols;
    return sweep;
}

}  // namespace

std::int32_t lora_tensor_sweep_rows(const Matrix& x, int processors) {
    const int column_blocks = std::max(1, pieces(x.cols, block_columns));
    const int row_tiles = std::max(1, processors / column_blocks);
    constexpr int multiple = warps * block_rows;
    return std::max(1, pieces(pieces(x.rows, row_tiles), multiple)) * multiple;
}

std::int64_t lora_grad_a_tensor_workspace(const LoraGradAParams& p) {
    return static_cast<std::int64_t>(p.tables.tile_count) * p.tables.largest_rank_sum * p.x.cols *
           static_cast<std::int64_t>(sizeof(float));
}

cudaError_t lora_grad_a_tensor(cudaStream_t stream, const LoraGradAParams& p) {
    const SweepParams sweep = grad_a_sweep(p);
    if (sweep.rank_blocks == 0 || p.tables.tile_count == 0 || p.x.cols == 0) return cudaSuccess;
    const cudaError_t status =
        p.tables.dropout ? launch_grad_a<true>(stream, sweep) : launch_grad_a<false>(stream, sweep);
    if (status != cudaSuccess) return status;
    const dim3 grid(static_cast<unsigned>(pieces(p.x.cols, threads)),
                    static_cast<unsigned>(p.tables.largest_rank),
                    static_cast<unsigned>(p.tables.target_count * p.tables.slot_count));
    finish_grad_a<<<grid, threads, 0, stream>>>(sweep);
    return cudaGetLastError();
}

std::int64_t lora_backward_tensor_workspace(const LoraBackwardParams& p) {
    const std::int64_t ranks = p.tables.largest_rank_sum;
    const std::int64_t gradients = p.tables.tile_count * ranks * p.dy.cols;
    const std::int64_t ds = ranks * pieces(p.dy.cols, block_columns) * p.dy.rows;
    return (gradients + ds) * static_cast<std::int64_t>(sizeof(float));
}

cudaError_t lora_backward_tensor(cudaStream_t stream, const LoraBackwardParams& p) {
    const SweepParams sweep = backward_sweep(p);
    if (sweep.rank_blocks > 0 && p.tables.tile_count > 0 && p.dy.cols > 0) {
        const cudaError_t status = launch_sweep<1, true, false>(stream, sweep);
        if (status != cudaSuccess) return status;
    }
    const std::int64_t largest = std::max(p.ds.rows, p.dy.cols) * groups_of_block;
    const dim3 grid(static_cast<unsigned>(pieces(largest, threads)),
                    static_cast<unsigned>(std::max(1, sweep.rank_blocks)),
                    static_cast<unsigned>(1 + p.tables.slot_count));
    finish_backward<<<grid, threads, 0, stream>>>(sweep, p.ds);
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
