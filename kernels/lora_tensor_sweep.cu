#include <algorithm>

#include "dropout.cuh"
#include "launch.cuh"
#include "lora_tensor.h"
#include "tensor_core.cuh"

namespace loratrain::kernels {

namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int block_columns = 256;  ///< features that one thread block sweeps
constexpr int block_rows = 32;      ///< tokens that a warp takes at once
constexpr int block_ranks = 16;
constexpr int stages = 8;
constexpr int stage_pieces = block_rows / 8;
constexpr int scratch_ld = block_columns + 4;

int pieces(std::int64_t count, std::int64_t size) {
    return static_cast<int>((count + size - 1) / size);
}

/// 16 neighbouring ranks of one target.
struct RankBlock {
    int target;  ///< -1: none
    int first;   ///< first rank
    int ranks;
    int column;  ///< of `first` in S
    std::uint32_t dropout;
    std::uint64_t key;
};

__device__ RankBlock find_block(const LoraTables& tables, std::int32_t slot, int index) {
    for (int target = 0; target < tables.target_count; ++target) {
        const LoraSlotEntry& entry = tables.slots[target * tables.slot_count + slot];
        const int blocks = (entry.rank + block_ranks - 1) / block_ranks;
        if (index < blocks) {
            const int first = index * block_ranks;
            return {target,
                    first,
                    min(block_ranks, entry.rank - first),
                    entry.column + first,
                    entry.dropout,
                    entry.dropout_key};
        }
        index -= blocks;
    }
    return {-1, 0, 0, 0, 0, 0};
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
template <int blocks>
struct Split {
    static constexpr int column_warps = blocks == 1 ? 1 : blocks == 2 ? 2 : 4;
    static constexpr int row_warps = warps / column_warps;
    static constexpr int chunks = block_columns / chunk_columns / column_warps;
    static constexpr int scratch_bytes = row_warps * blocks * block_ranks * scratch_ld * 4;
    static constexpr int bytes = std::max(stages * stage_pieces * threads * 16, scratch_bytes);
};

/// The two bf16 of S at (row, column) and (row, column + 1), zero outside.
__device__ __forceinline__ std::uint32_t s_pair(const Matrix& s, std::int64_t row, std::int64_t end,
                                                const RankBlock& block, int rank) {
    std::uint32_t pair = 0;
    if (row >= end) return pair;
    const auto* source =
        static_cast<const std::uint16_t*>(s.data) + row * s.ld + block.column + rank;
    if (rank < block.ranks) pair = source[0];
    if (rank + 1 < block.ranks) pair |= static_cast<std::uint32_t>(source[1]) << 16U;
    return pair;
}

/// Sᵀ of 16 rows as A fragment: rows are ranks, summed columns are tokens.
__device__ __forceinline__ void load_transposed_s(const Matrix& s, const RankBlock& block,
                                                  std::int64_t first, std::int64_t end,
                                                  std::uint32_t (&fragment)[4]) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            fragment[2 * half + part] =
                transposed(s_pair(s, first + half * 8 + g, end, block, part * 8 + 2 * q));
        }
    }
}

/// Brings rows of X in pieces of 16 bytes; step i of a warp is chunk i % chunks of row block
/// i / chunks.
template <int blocks>
struct Feeder {
    uint4* staging;
    const Bf16* x;  ///< first row and column of this lane
    const Bf16* safe;
    std::int64_t ld;
    int column;
    int columns;
    int first_row;  ///< of this lane
    int end_row;

    __device__ __forceinline__ uint4& piece(int step, int i) const {
        return staging[(step % stages * stage_pieces + i) * threads + threadIdx.x];
    }
    __device__ __forceinline__ void fetch(int step) const {
        constexpr int chunks = Split<blocks>::chunks;
        const int chunk = step % chunks;
        const int down = step / chunks * Split<blocks>::row_warps * block_rows;
        const int first = chunk * chunk_columns;
        const int bytes_left = min(16, max(0, (columns - column - first) * 2));
#pragma unroll
        for (int i = 0; i < stage_pieces; ++i) {
            const bool valid = first_row + down + i * 8 < end_row && bytes_left > 0;
            copy_piece_async(
                &piece(step, i),
                valid ? x + static_cast<std::int64_t>(down + i * 8) * ld + first : safe,
                valid ? bytes_left : 0);
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

__device__ __forceinline__ void mask_rows(const SweepParams& p, const RankBlock& block,
                                          std::uint32_t step, int first_row, int end_row,
                                          int column, const uint4 (&x)[stage_pieces],
                                          uint4 (&kept)[stage_pieces]) {
#pragma unroll
    for (int i = 0; i < stage_pieces; ++i) {
        kept[i] = x[i];
        if (block.dropout == 0) continue;
        const int row = min(first_row + i * 8, end_row - 1);
        const uint4 bits =
            dropout_bits(block.key, step, static_cast<std::uint32_t>(p.tables.sample_ids[row]),
                         static_cast<std::uint32_t>(p.tables.positions[row]),
                         static_cast<std::uint32_t>(column / 8));
        kept[i].x &= kept_halves(bits.x, block.dropout);
        kept[i].y &= kept_halves(bits.y, block.dropout);
        kept[i].z &= kept_halves(bits.z, block.dropout);
        kept[i].w &= kept_halves(bits.w, block.dropout);
    }
}

/// sums [16 ranks, 32 columns] += Sᵀ X for 16 rows.
__device__ __forceinline__ void add_outer(const std::uint32_t (&s)[4], const uint4& top,
                                          const uint4& bottom, float (&sums)[4][4]) {
    multiply_add(sums[0], s[0], s[1], s[2], s[3], transposed(top.x), transposed(bottom.x));
    multiply_add(sums[1], s[0], s[1], s[2], s[3], transposed(top.y), transposed(bottom.y));
    multiply_add(sums[2], s[0], s[1], s[2], s[3], transposed(top.z), transposed(bottom.z));
    multiply_add(sums[3], s[0], s[1], s[2], s[3], transposed(top.w), transposed(bottom.w));
}

/// Adds the row warps' sums and writes this tile's partial gradients.
template <int blocks, bool with_ds>
__device__ __forceinline__ void write_gradients(
    const SweepParams& p, std::int64_t first_column, int block_count,
    const float (&sums)[blocks][Split<blocks>::chunks][4][4], float* scratch) {
    constexpr int ranks = blocks * block_ranks;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
    const int row_warp = warp / Split<blocks>::column_warps;
    const int left = warp % Split<blocks>::column_warps * Split<blocks>::chunks * chunk_columns;
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
        for (int c = 0; c < Split<blocks>::chunks; ++c) {
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                float* target = scratch + (row_warp * ranks + b * block_ranks + g) * scratch_ld +
                                left + c * chunk_columns + 8 * q + 2 * w;
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
        for (int w = 0; w < Split<blocks>::row_warps; ++w) {
            sum += scratch[(w * ranks + rank) * scratch_ld + column];
        }
        const std::int64_t at =
            with_ds ? (first_block * p.x.cols + first_column + column) * block_ranks + rank
                    : (first_block * block_ranks + rank) * p.x.cols + first_column + column;
        p.gradients[at] = sum;
    }
}

template <int blocks, bool with_ds, bool with_dropout>
__global__ void __launch_bounds__(threads, 1) sweep_kernel(SweepParams p) {
    using Shape = Split<blocks>;
    extern __shared__ uint4 staging[];
    __shared__ RankBlock rank_blocks[blocks];
    __shared__ uint4 factor[with_ds ? block_columns / chunk_columns * 2 * 32 : 1];
    const LoraTile tile = p.tables.tiles[blockIdx.y];
    if (tile.segment < 0) return;
    const LoraSegmentEntry segment = p.tables.segments[tile.segment];
    if (threadIdx.x < blocks) {
        rank_blocks[threadIdx.x] =
            find_block(p.tables, segment.slot, static_cast<int>(blockIdx.z * blocks + threadIdx.x));
    }
    __syncthreads();
    int block_count = 0;
#pragma unroll
    for (int b = 0; b < blocks; ++b) block_count += rank_blocks[b].target >= 0 ? 1 : 0;
    if (block_count == 0) return;

    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
    const int row_warp = warp / Shape::column_warps;
    const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * block_columns;
    const int first_row = tile.begin + row_warp * block_rows;
    Feeder<blocks> feeder;
    feeder.staging = staging;
    feeder.safe = static_cast<const Bf16*>(p.x.data);
    feeder.column = static_cast<int>(first_column) +
                    warp % Shape::column_warps * Shape::chunks * chunk_columns + 8 * q;
    feeder.x = feeder.safe + (first_row + g) * p.x.ld + feeder.column;
    feeder.ld = p.x.ld;
    feeder.columns = static_cast<int>(p.x.cols);
    feeder.first_row = first_row + g;
    feeder.end_row = tile.end;
    constexpr int rows_apart = Shape::row_warps * block_rows;
    const int row_blocks = max(0, (tile.end - first_row + rows_apart - 1) / rows_apart);
    const int steps = row_blocks * Shape::chunks;
#pragma unroll
    for (int i = 0; i < stages - 1; ++i) {
        if (i < steps) feeder.fetch(i);
        commit_pieces();
    }
    if constexpr (with_ds) {
        stage_factor(p, p.tables.slots[segment.slot], rank_blocks[0], first_column,
                     reinterpret_cast<Bf16*>(factor));
        __syncthreads();
    }

    float sums[blocks][Shape::chunks][4][4] = {};
    for (int row_block = 0; row_block < row_blocks; ++row_block) {
        const int row = first_row + row_block * rows_apart;
        std::uint32_t s[blocks][block_rows / 16][4] = {};
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
            if (rank_blocks[b].target < 0) continue;
#pragma unroll
            for (int m = 0; m < block_rows / 16; ++m) {
                load_transposed_s(p.s[rank_blocks[b].target], rank_blocks[b], row + m * 16,
                                  tile.end, s[b][m]);
            }
        }
        float ds[block_rows / 16][2][4] = {};
#pragma unroll
        for (int c = 0; c < Shape::chunks; ++c) {
            const int step = row_block * Shape::chunks + c;
            if (step + stages - 1 < steps) feeder.fetch(step + stages - 1);
            commit_pieces();
            wait_for_pieces<stages - 1>();
            uint4 x[stage_pieces];
#pragma unroll
            for (int i = 0; i < stage_pieces; ++i) x[i] = feeder.piece(step, i);
            if constexpr (with_ds) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const uint4 f = factor[(c * 2 + half) * 32 + threadIdx.x % 32];
#pragma unroll
                    for (int m = 0; m < block_rows / 16; ++m) {
                        const uint4& top = x[2 * m];
                        const uint4& bottom = x[2 * m + 1];
                        multiply_add(ds[m][half], top.x, bottom.x, top.y, bottom.y, f.x, f.y);
                        multiply_add(ds[m][half], top.z, bottom.z, top.w, bottom.w, f.z, f.w);
                    }
                }
            }
#pragma unroll
            for (int b = 0; b < blocks; ++b) {
                if (with_dropout) {
                    uint4 kept[stage_pieces];
                    mask_rows(p, rank_blocks[b], segment.step, row + g, tile.end,
                              feeder.column + c * chunk_columns, x, kept);
#pragma unroll
                    for (int m = 0; m < block_rows / 16; ++m) {
                        add_outer(s[b][m], kept[2 * m], kept[2 * m + 1], sums[b][c]);
                    }
                } else {
#pragma unroll
                    for (int m = 0; m < block_rows / 16; ++m) {
                        add_outer(s[b][m], x[2 * m], x[2 * m + 1], sums[b][c]);
                    }
                }
            }
        }
        if constexpr (with_ds) {
            float* target =
                p.ds +
                (static_cast<std::int64_t>(blockIdx.z * gridDim.x + blockIdx.x) * p.x.rows + row +
                 g) *
                    block_ranks +
                2 * q;
#pragma unroll
            for (int i = 0; i < stage_pieces; ++i) {
                if (row + g + i * 8 >= tile.end) continue;
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    *reinterpret_cast<float2*>(target + i * 8 * block_ranks + half * 8) =
                        make_float2(ds[i / 2][half][i % 2 * 2], ds[i / 2][half][i % 2 * 2 + 1]);
                }
            }
        }
    }
    wait_for_pieces<0>();
    __syncthreads();
    write_gradients<blocks, with_ds>(p, first_column, block_count, sums,
                                     reinterpret_cast<float*>(staging));
}

/// Sum of a partial gradient over the tiles of one slot, in their order.
__device__ __forceinline__ float sum_of_tiles(const SweepParams& p, std::int32_t slot,
                                              std::int64_t first, std::int64_t stride) {
    float sum = 0.0F;
    for (int tile = 0; tile < p.tables.tile_count; ++tile) {
        const std::int32_t segment = p.tables.tiles[tile].segment;
        if (segment < 0 || p.tables.segments[segment].slot != slot) continue;
        sum += p.gradients[first + tile * stride];
    }
    return sum;
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
    const std::int64_t ranks = static_cast<std::int64_t>(p.rank_blocks) * block_ranks;
    const float sum =
        sum_of_tiles(p, slot_index, (block * block_ranks + rank % block_ranks) * p.x.cols + column,
                     ranks * p.x.cols);
    slot.grad_a[rank * p.x.cols + column] += sum * dropout_scale(slot.dropout);
}

__device__ __forceinline__ void finish_ds(const SweepParams& p, const Matrix& ds, std::int64_t i) {
    const std::int64_t row = i / ds.cols;
    const std::int64_t column = i % ds.cols;
    if (row >= ds.rows) return;
    float value = 0.0F;
    for (int g = 0; g < p.tables.segment_count; ++g) {
        const LoraSegmentEntry& segment = p.tables.segments[g];
        if (row < segment.begin || row >= segment.end) continue;
        const LoraSlotEntry& slot = p.tables.slots[segment.slot];
        const std::int64_t rank = column - slot.column;
        if (rank < 0 || rank >= slot.rank) break;
        const std::int64_t parts = (p.x.cols + block_columns - 1) / block_columns;
        const float* part =
            p.ds + (rank / block_ranks * parts * p.x.rows + row) * block_ranks + rank % block_ranks;
#pragma unroll 8
        for (std::int64_t j = 0; j < parts; ++j) value += part[j * p.x.rows * block_ranks];
        value *= slot.scale;
        break;
    }
    static_cast<Bf16*>(ds.data)[row * ds.ld + column] = from_float<Bf16>(value);
}

__device__ __forceinline__ void finish_grad_b(const SweepParams& p, std::int32_t slot_index,
                                              std::int64_t i) {
    const LoraSlotEntry& slot = p.tables.slots[slot_index];
    if (i >= slot.rank * p.x.cols) return;
    const std::int64_t column = i / slot.rank;
    const std::int64_t rank = i % slot.rank;
    const std::int64_t first =
        (rank / block_ranks * p.x.cols + column) * block_ranks + rank % block_ranks;
    slot.grad_b[i] += sum_of_tiles(
        p, slot_index, first, static_cast<std::int64_t>(p.rank_blocks) * p.x.cols * block_ranks);
}

/// blockIdx.y = 0: dS; y > 0: the gradient of B of slot y - 1.
__global__ void __launch_bounds__(threads) finish_backward(SweepParams p, Matrix ds) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    if (blockIdx.y == 0) {
        finish_ds(p, ds, i);
    } else {
        finish_grad_b(p, static_cast<std::int32_t>(blockIdx.y) - 1, i);
    }
}

template <int blocks, bool with_ds, bool with_dropout>
cudaError_t launch_sweep(cudaStream_t stream, const SweepParams& p) {
    constexpr int shared = Split<blocks>::bytes;
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
    const std::int64_t largest =
        std::max(p.ds.rows * p.ds.cols, std::int64_t{p.tables.largest_rank} * p.dy.cols);
    if (largest == 0) return cudaSuccess;
    const dim3 grid(static_cast<unsigned>(pieces(largest, threads)),
                    static_cast<unsigned>(1 + p.tables.slot_count));
    finish_backward<<<grid, threads, 0, stream>>>(sweep, p.ds);
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
