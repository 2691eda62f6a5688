#pragma once

#include "lora_columns.cuh"
#include "lora_sweep.cuh"

/// The sweep for slots of many ranks, without dropout: up to 64 of them in one pass over X or dY. A
/// block's warps take the same 32 rows; of the gradients each has 64 columns, of dS a rank block,
/// or half of its rows. dS is summed in the order of sweep_kernel, gradients in that of its warps
/// that have columns alone.
namespace loratrain::kernels::sweep {

template <int blocks, bool with_ds>
struct Wide {
    static_assert(blocks == 2 || blocks == 4);
    static constexpr int stages = 3;
    static constexpr int column_warps = warps;
    static constexpr int row_warps = 1;
    static constexpr int chunks = block_columns / chunk_columns / column_warps;
    static constexpr int lines = block_columns / line_columns;
    static_assert(lines == warps);
    static constexpr int warps_of_block = warps / blocks;  ///< that share a rank block of dS
    static constexpr int ds_halves = 2 / warps_of_block;   ///< 16 rows each, of a warp
    static constexpr int s_start = lines * stage_pieces;   ///< of a stage
    static constexpr int step_pieces = s_start + blocks * s_pieces;
    static constexpr int factor_start = stages * step_pieces;
    static constexpr int block_pieces = with_ds ? factor_pieces<true> : 0;
    static constexpr int scratch_bytes = blocks * block_ranks * scratch_ld * 4;
    static constexpr int bytes =
        std::max((factor_start + blocks * block_pieces) * 16, scratch_bytes);
    static constexpr int of_block = bytes + blocks * static_cast<int>(sizeof(RankBlock));
    static_assert(of_block <= least_shared_bytes);
};

/// Brings 32 rows of a block's columns and of S, step by step, each warp a line and a rank block.
template <class Shape, int blocks>
struct WideFeeder {
    uint4* staging;
    const Bf16* x;  ///< the tile's first row, the block's first column
    std::int64_t ld;
    int columns;  ///< from there to the last of X
    int first_row;
    int end_row;
    const RankBlock* rank_blocks;

    __device__ __forceinline__ uint4* stage_of(int step) const {
        return staging + step % Shape::stages * Shape::step_pieces;
    }
    __device__ __forceinline__ const uint4* line_of(int step, int line) const {
        return stage_of(step) + line * stage_pieces;
    }
    __device__ __forceinline__ const uint4* s_of(int step, int block) const {
        return stage_of(step) + Shape::s_start + block * s_pieces;
    }
    __device__ __forceinline__ void fetch(int step) const {
        const int warp = static_cast<int>(threadIdx.x) / 32;
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int down = step * block_rows;
        const int first = warp * line_columns;
        copy_line_async<block_rows>(stage_of(step) + warp * stage_pieces, x + down * ld + first, ld,
                                    end_row - first_row - down, columns - first);
        if (warp >= blocks || rank_blocks[warp].ranks == 0) return;
        uint4* s = stage_of(step) + Shape::s_start + warp * s_pieces;
#pragma unroll
        for (int piece = lane; piece < s_pieces; piece += 32) {
            stage_s_piece(s + piece, rank_blocks[warp], first_row + down + piece / 2, end_row,
                          piece % 2);
        }
    }
};

/// B of a rank block, `ranks` from `first_rank` on, as stage_factor() stages it. A warp reads 16
/// ranks of 16 columns at once; all that a thread reads is under way together.
template <bool aligned>
__device__ __forceinline__ void stage_factor_block(const LoraSlotEntry& slot, int first_rank,
                                                   int ranks, const ColumnBlock& columns,
                                                   std::uint32_t* staged) {
    constexpr int pairs = threads / 4;  ///< of columns, at once
    constexpr int turns = block_columns / 2 / pairs;
    const int quad = static_cast<int>(threadIdx.x) % 4;
    const int first = static_cast<int>(threadIdx.x) / 4 * 2;
    float4 even[turns];
    float4 odd[turns];
#pragma unroll
    for (int i = 0; i < turns; ++i) {
        const int column = first + i * pairs * 2;
        const int left = columns.end - columns.first - column;
        const float* source =
            slot.b + (static_cast<std::int64_t>(columns.factor) + column) * slot.rank + first_rank;
        even[i] = four_of_factor<aligned>(source, quad * 4, left > 0 ? ranks : 0);
        odd[i] = four_of_factor<aligned>(source + slot.rank, quad * 4, left > 1 ? ranks : 0);
    }
#pragma unroll
    for (int i = 0; i < turns; ++i) {
        const int column = first + i * pairs * 2;
        std::uint32_t* word = staged + column / chunk_columns * 2 * 32 * 4 +
                              column % chunk_columns / 8 * 4 + column % 8 / 2 + quad / 2 * 32 * 4 +
                              quad % 2 * 4 * 4 * 4;
        word[0] = pack_halves(even[i].x, odd[i].x);
        word[16] = pack_halves(even[i].y, odd[i].y);
        word[32] = pack_halves(even[i].z, odd[i].z);
        word[48] = pack_halves(even[i].w, odd[i].w);
    }
}

/// B of `blocks` rank blocks.
template <int blocks>
__device__ __forceinline__ void stage_factors(const LoraSlotEntry& slot, int first_rank,
                                              const ColumnBlock& columns, std::uint32_t* staged) {
    const bool aligned = has_aligned_b(slot);
    for (int block = 0; block < blocks; ++block) {
        const int first = first_rank + block * block_ranks;
        std::uint32_t* target = staged + block * factor_pieces<true> * 4;
        if (aligned) {
            stage_factor_block<true>(slot, first, slot.rank - first, columns, target);
        } else {
            stage_factor_block<false>(slot, first, slot.rank - first, columns, target);
        }
    }
}

/// The dS that this warp has of one step: rows `first_half` * 16 .. of rank block `block`.
template <class Shape, class Feed>
__device__ __forceinline__ void add_wide_ds(const Feed& feeder, int step, const uint4* factor,
                                            int first_half, float (&ds)[Shape::ds_halves][2][4]) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int chunk = 0; chunk < block_columns / chunk_columns; ++chunk) {
        const uint4* staged = feeder.line_of(step, chunk / 2);
        const int piece = chunk % 2 * 4 + q;
        const uint4 f[2] = {factor[chunk * 2 * 32 + threadIdx.x % 32],
                            factor[(chunk * 2 + 1) * 32 + threadIdx.x % 32]};
#pragma unroll
        for (int m = 0; m < Shape::ds_halves; ++m) {
            const int row = (first_half + m) * 16 + g;
            const uint4 top = staged[staged_piece(row, piece)];
            const uint4 bottom = staged[staged_piece(row + 8, piece)];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                multiply_add(ds[m][half], top.x, bottom.x, top.y, bottom.y, f[half].x, f[half].y);
                multiply_add(ds[m][half], top.z, bottom.z, top.w, bottom.w, f[half].z, f[half].w);
            }
        }
    }
}

/// `target`: of the part, this lane's first row and ranks.
template <int halves>
__device__ __forceinline__ void write_wide_ds(float* target, int rows_left,
                                              const float (&ds)[halves][2][4]) {
#pragma unroll
    for (int i = 0; i < halves * 2; ++i) {
        if (i * 8 >= rows_left) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            *reinterpret_cast<float2*>(target + i * 8 * block_ranks + half * 8) =
                make_float2(ds[i / 2][half][i % 2 * 2], ds[i / 2][half][i % 2 * 2 + 1]);
        }
    }
}

/// sums += Sᵀ X of this warp's line of one step.
template <class Shape, int blocks, class Feed>
__device__ __forceinline__ void add_wide_outer(const Feed& feeder, int step, int block_count,
                                               float (&sums)[blocks][Shape::chunks][4][4]) {
    const uint4* staged = feeder.line_of(step, static_cast<int>(threadIdx.x) / 32);
    Columns fragments[Shape::chunks];
#pragma unroll
    for (int half = 0; half < Shape::chunks; ++half) {
        load_columns([&](int r, int piece) { return staged + staged_piece(r, half * 4 + piece); },
                     fragments[half]);
    }
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
        if (b >= block_count) break;
        std::uint32_t s[block_rows / 16][4];
#pragma unroll
        for (int m = 0; m < block_rows / 16; ++m) {
            load_transposed_block(feeder.s_of(step, b) + m * 32, s[m]);
        }
#pragma unroll
        for (int half = 0; half < Shape::chunks; ++half)
            add_outer(s, fragments[half], sums[b][half]);
    }
}

template <int blocks, bool with_ds>
__global__ void __launch_bounds__(threads, blocks_of_processor) wide_sweep_kernel(SweepParams p) {
    using Shape = Wide<blocks, with_ds>;
    extern __shared__ uint4 staging[];
    __shared__ RankBlock rank_blocks[blocks];
    let_next_kernel_start();
    wait_for_kernel_before();
    const LoraTile tile = p.tables.tiles[blockIdx.y];
    if (tile.segment < 0) return;
    const ColumnBlock columns = find_columns<with_ds>(p, column_block_of_block(p));
    if (with_ds && ranks_of(p, tile.slot, columns.target) <= most_narrow_ranks) return;
    const int first_block = rank_group_of_block(p) * blocks;
    if (threadIdx.x < blocks) {
        rank_blocks[threadIdx.x] = find_block(
            p.tables, p.s, tile.slot, first_block + static_cast<int>(threadIdx.x),
            with_ds ? columns.target : 0, with_ds ? columns.target + 1 : p.tables.target_count);
    }
    __syncthreads();
    int block_count = 0;
#pragma unroll
    for (int b = 0; b < blocks; ++b) block_count += rank_blocks[b].ranks > 0 ? 1 : 0;
    if (block_count == 0) return;

    WideFeeder<Shape, blocks> feeder;
    feeder.staging = staging;
    feeder.x = static_cast<const Bf16*>(p.x.data) + tile.begin * p.x.ld + columns.first;
    feeder.ld = p.x.ld;
    feeder.columns = columns.end - columns.first;
    feeder.first_row = tile.begin;
    feeder.end_row = tile.end;
    feeder.rank_blocks = rank_blocks;
    const int steps = (tile.end - tile.begin + block_rows - 1) / block_rows;
#pragma unroll
    for (int i = 0; i < Shape::stages - 1; ++i) {
        if (i < steps) feeder.fetch(i);
        commit_pieces();
    }
    if constexpr (with_ds) {
        stage_factors<blocks>(p.tables.slots[columns.target * p.tables.slot_count + tile.slot],
                              rank_blocks[0].first, columns,
                              reinterpret_cast<std::uint32_t*>(staging + Shape::factor_start));
    }

    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int ds_block = warp / Shape::warps_of_block;
    const int first_half = warp % Shape::warps_of_block * Shape::ds_halves;
    const int lane_row = first_half * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    float* ds_part = nullptr;
    if constexpr (with_ds) {
        const auto part = static_cast<std::int64_t>(first_block + ds_block) *
                              column_blocks_before(p, p.tables.target_count) +
                          column_block_of_block(p);
        ds_part =
            p.ds + (part * p.x.rows + tile.begin + lane_row) * block_ranks + threadIdx.x % 4 * 2;
    }
    float sums[blocks][Shape::chunks][4][4] = {};
    for (int step = 0; step < steps; ++step) {
        wait_for_pieces<Shape::stages - 2>();
        __syncthreads();
        if (step + Shape::stages - 1 < steps) feeder.fetch(step + Shape::stages - 1);
        commit_pieces();
        if constexpr (with_ds) {
            if (ds_block < block_count) {
                float ds[Shape::ds_halves][2][4] = {};
                add_wide_ds<Shape>(feeder, step,
                                   staging + Shape::factor_start + ds_block * Shape::block_pieces,
                                   first_half, ds);
                const int row = step * block_rows;
                write_wide_ds(ds_part + row * block_ranks, tile.end - tile.begin - lane_row - row,
                              ds);
            }
        }
        add_wide_outer<Shape, blocks>(feeder, step, block_count, sums);
    }
    wait_for_pieces<0>();
    __syncthreads();
    write_gradients<Shape, blocks, with_ds>(p, columns, block_count, sums,
                                            reinterpret_cast<float*>(staging));
}

template <int blocks, bool with_ds>
cudaError_t launch_wide_sweep(cudaStream_t stream, SweepParams p, int shared_limit) {
    constexpr int shared = Wide<blocks, with_ds>::bytes;
    const auto kernel = wide_sweep_kernel<blocks, with_ds>;
    static const cudaError_t raised =
        allow_shared(reinterpret_cast<const void*>(kernel), shared, shared_limit);
    if (raised != cudaSuccess) return raised;
    p.rank_groups = pieces(p.rank_blocks, blocks);
    const int column_blocks =
        with_ds ? column_blocks_before(p, p.tables.target_count) : pieces(p.x.cols, block_columns);
    const dim3 grid(static_cast<unsigned>(column_blocks * p.rank_groups),
                    static_cast<unsigned>(p.tables.tile_count));
    return launch_early(stream, kernel, grid, threads, shared, p);
}

}  // namespace loratrain::kernels::sweep
