#include <algorithm>

#include "kernels/gate.cuh"
#include "kernels/launch.cuh"
#include "lora_finish.cuh"
#include "lora_gated.h"
#include "lora_gated_tile.cuh"
#include "lora_launch.h"
#include "lora_wide_backward.cuh"

/// dgate, dup and h are made in shared memory and swept there: a block takes 256 columns of them,
/// goes through the rows of a tile 32 at a time, and keeps the sums of three gradients of factors
/// in registers. A warp has 32 columns, of which it makes dS as well; those of the block's warps
/// are added up at every step.
namespace loratrain::kernels {

using namespace pass;

namespace {

/// 8 columns of gate, up and dh, a matrix apart, become dgate, dup and h; complete(dh) comes first.
template <class Function, class Complete>
__device__ __forceinline__ void make_gradients(const uint4* staged, const Complete& complete,
                                               uint4 (&made)[swept]) {
    float g[wide];
    float u[wide];
    float d[wide];
    const auto* from = reinterpret_cast<const Bf16*>(staged);
    load<wide>(from, g);
    load<wide>(from + wide * gated_matrix, u);
    load<wide>(from + 2 * wide * gated_matrix, d);
    complete(d);
    gradients<Bf16, Function, wide>(g, u, d);
    store<wide>(reinterpret_cast<Bf16*>(&made[0]), g);
    store<wide>(reinterpret_cast<Bf16*>(&made[1]), d);
    store<wide>(reinterpret_cast<Bf16*>(&made[2]), u);
}

/// dS [16 rows, 16 ranks] of gate and of up += dgate B, dup B, of the rows g and g + 8 of lanes.
__device__ __forceinline__ void add_ds(const uint4 (&x)[2][swept], const Factor (&factors)[2],
                                       float (&ds)[2][2][4]) {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const std::uint32_t(&b)[4] = factors[t][n];
            multiply_add(ds[t][n], x[0][t].x, x[1][t].x, x[0][t].y, x[1][t].y, b[0], b[1]);
            multiply_add(ds[t][n], x[0][t].z, x[1][t].z, x[0][t].w, x[1][t].w, b[2], b[3]);
        }
    }
}

/// sums [16 ranks, 32 columns] += Sᵀ x of 16 staged rows; `operand`: GatedLane::operand; s: at
/// GatedLane::ranks.
__device__ __forceinline__ void add_rows(const uint4* x, int operand, const uint4* s,
                                         float (&sums)[4][4]) {
    std::uint32_t ranks[4];
    load_transposed(s, ranks);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
        std::uint32_t columns[4];
        load_transposed(x + (operand ^ pair * 2), columns);
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            multiply_add(sums[2 * pair + t], ranks[0], ranks[1], ranks[2], ranks[3], columns[2 * t],
                         columns[2 * t + 1]);
        }
    }
}

/// A warp's dS of 16 rows goes where its dgate and dup were: 4 ranks a piece. `left`:
/// GatedLane::left.
__device__ __forceinline__ void leave_ds(const float (&ds)[2][2][4], int left, int q, uint4* rows) {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                uint4* piece = rows + t * gated_matrix + i * eight_rows + (left ^ n * 2);
                reinterpret_cast<float2*>(piece)[q % 2] =
                    make_float2(ds[t][n][i * 2], ds[t][n][i * 2 + 1]);
            }
        }
    }
}

/// Adds up the dS that the warps left of the rows from `first` on, 4 ranks of a row and target per
/// thread, and writes it as a part.
__device__ __forceinline__ void write_ds(const PassParams& p, const RankBlock (&rank_blocks)[swept],
                                         int first, int end, const uint4* stage) {
    const int thread = fresh_thread();
    const int target = thread / (block_rows * 4);
    const int own = thread % (block_rows * 4) / 4;
    const int four = thread % 4;
    const int left = target * gated_matrix + ds_piece(own, four);
    float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll
    for (int warp = 0; warp < wide_warps; ++warp) {
        add_to(sum, *reinterpret_cast<const float4*>(stage + (left ^ warp % 2 * 4) +
                                                     warp / 2 * stage_pieces));
    }
    if (first + own >= end || rank_blocks[target].ranks == 0) return;
    const std::uint32_t part = static_cast<std::uint32_t>(target) * gridDim.x + blockIdx.x;
    const auto row = static_cast<std::uint32_t>(first + own);
    float* to = p.ds + (part * static_cast<std::uint32_t>(p.x.rows) + row) * block_ranks;
    *reinterpret_cast<float4*>(to + four * 4) = sum;
}

template <class Shape>
__device__ __forceinline__ void write_gated(const GatedPass& p,
                                            const RankBlock (&rank_blocks)[swept],
                                            const float (&sums)[swept][1][1][4][4],
                                            float* scratch) {
#pragma unroll
    for (int i = 0; i < swept; ++i) {
        __syncthreads();
        if (rank_blocks[i].ranks == 0) continue;
        const ColumnBlock columns = gated_columns(p, i);
        if (i < 2) {
            write_gradients<Shape, 1, true>(p.b, rank_blocks + i, columns, 0, 1, sums[i], scratch);
        } else {
            write_gradients<Shape, 1, false>(p.a, rank_blocks + i, columns, 0, 1, sums[i], scratch);
        }
    }
}

/// 32 rows from `row` on, which are staged: dgate and dup to memory and, with h, to where gate, up
/// and dh were; sums += their gradients. Leaves dS for write_ds. `factor`: of stage_down.
template <class Function, bool with_down>
__device__ __forceinline__ void pass_step(const GatedPass& p, const LoraTile& tile, int row,
                                          const Factor (&factors)[2], const DownMask& mask,
                                          const std::uint32_t* factor, uint4* stage,
                                          float (&sums)[swept][1][1][4][4]) {
    using Shape = Gated<with_down>;
    const GatedLane lane(fresh_thread());
    const int own = lane.own();
    const int operand = lane.operand();
    const int left = lane.left();
    const int ranks = lane.ranks();
    const auto ld = static_cast<std::uint32_t>(p.dgate.ld);
    const std::uint32_t column = blockIdx.x * block_columns + lane.column;
    std::uint32_t out = static_cast<std::uint32_t>(row + lane.g()) * ld + column;
    const std::uint32_t out_end =
        column < p.gate.cols ? static_cast<std::uint32_t>(tile.end) * ld : 0;
#pragma unroll
    for (int first = 0; first < block_rows; first += 16) {
        uint4* rows = stage + first * line_pieces;
        uint4 bits[2] = {};
        float of_down[4][4] = {};
        if constexpr (with_down) {
            mask.draw(stage + Shape::rows_start + first + lane.g(), lane.column / 8, bits);
            multiply_down(stage + Shape::s_start + 2 * s_pieces + first * 2 + lane.rows_of_ranks(),
                          factor, of_down);
        }
        uint4 x[2][swept];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            make_gradients<Function>(
                rows + own + i * eight_rows,
                [&](float(&dh)[wide]) {
                    if constexpr (with_down) mask.add(of_down, i, bits[i], dh);
                },
                x[i]);
            if (out < out_end) {
                store_at_once(static_cast<Bf16*>(p.dgate.data) + out, x[i][0]);
                store_at_once(static_cast<Bf16*>(p.dup.data) + out, x[i][1]);
            }
            out += 8 * ld;
        }
        if constexpr (with_down) {
#pragma unroll
            for (int i = 0; i < 2; ++i) x[i][2] = masked(x[i][2], bits[i], mask.dropout);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int m = 0; m < swept; ++m) {
                rows[own + i * eight_rows + m * gated_matrix] = x[i][m];
            }
        }
        float ds[2][2][4] = {};
        add_ds(x, factors, ds);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < swept; ++i) {
            add_rows(rows + i * gated_matrix, operand,
                     stage + Shape::s_start + i * s_pieces + first * 2 + ranks, sums[i][0][0]);
        }
        __syncwarp();
        leave_ds(ds, left, lane.q(), rows);
    }
}

/// blockIdx.x: the block of columns; blockIdx.y: the tile.
template <class Function, bool with_down>
__global__ void __launch_bounds__(wide_threads, blocks_of_processor)
    gated_backward_kernel(GatedPass p) {
    using Shape = Gated<with_down>;
    extern __shared__ uint4 staging[];
    __shared__ RankBlock rank_blocks[swept];
    __shared__ DownMask mask;
    let_next_kernel_start();
    wait_for_kernel_before();
    const LoraTile tile = p.b.tables.tiles[blockIdx.y];
    find_gated_blocks(p, tile, rank_blocks);
    fetch_gated<with_down>(p, tile.begin, tile.end, rank_blocks, staging);
    commit_pieces();
    const GatedLane first_lane(static_cast<int>(threadIdx.x));
    Factor factors[2] = {};
#pragma unroll
    for (int t = 0; t < 2; ++t) {
        if (rank_blocks[t].ranks == 0) continue;
        load_factor(p.b, rank_blocks[t], tile, gated_columns(p, t), first_lane, factors[t]);
    }
    auto* factor = reinterpret_cast<std::uint32_t*>(staging + Shape::factor_start);
    if (with_down) {
        mask.find(p.a, rank_blocks[2], tile);
        stage_down(p, tile, factor);
    }
    float sums[swept][1][1][4][4] = {};
    int place = 0;
#pragma unroll 1
    for (int row = tile.begin; row < tile.end; row += block_rows) {
        uint4* stage = staging + place;
        place = Shape::stage - place;
        wait_for_pieces<0>();
        __syncthreads();
        if (row + block_rows < tile.end) {
            fetch_gated<with_down>(p, row + block_rows, tile.end, rank_blocks, staging + place);
        }
        commit_pieces();
        pass_step<Function, with_down>(p, tile, row, factors, mask, factor, stage, sums);
        __syncthreads();
        write_ds(p.b, rank_blocks, row, tile.end, stage);
    }
    write_gated<Shape>(p, rank_blocks, sums, reinterpret_cast<float*>(staging));
}

template <bool with_down>
constexpr int shared_of_gated = Gated<with_down>::bytes +
                                static_cast<int>(swept * sizeof(RankBlock) +
                                                 (with_down ? sizeof(DownMask) : 0));
static_assert(blocks_of_processor * shared_of_gated<true> <= most_shared_bytes);

GatedPass gated_pass(const LoraGatedParams& p) {
    const SwiGluBackwardParams& made = p.product;
    GatedPass pass{made.gate, made.up, made.dh, made.dgate, made.dup, {}, {}, p.adds_down};
    const std::int64_t f = made.gate.cols;
    PassParams& b = pass.b;
    b.x = made.dgate;
    b.x.cols = 2 * f;
    std::copy_n(p.s, 2, b.s);
    b.ends[0] = f;
    b.ends[1] = 2 * f;
    b.tables = p.tables;
    b.tables.target_count = 2;
    b.rank_blocks = 1;
    b.part_columns = block_columns;
    b.gradients = static_cast<float*>(p.workspace);
    const std::int64_t of_tiles = p.tables.tile_count * block_ranks * f;
    b.ds = b.gradients + 3 * of_tiles;
    PassParams& a = pass.a;
    a.x = made.gate;
    a.s[0] = p.ds_of_down;
    a.tables = p.tables;
    a.tables.slots += 2 * p.tables.slot_count;
    a.tables.target_count = 1;
    a.rank_blocks = 1;
    a.gradients = b.gradients + 2 * of_tiles;
    return pass;
}

template <class Function, bool with_down>
cudaError_t launch_gated(cudaStream_t stream, const GatedPass& p, int shared_limit) {
    const dim3 grid(static_cast<unsigned>(pieces(p.gate.cols, block_columns)),
                    static_cast<unsigned>(p.b.tables.tile_count));
    return launch_with_shared<gated_backward_kernel<Function, with_down>, Gated<with_down>::bytes>(
        stream, shared_limit, grid, wide_threads, p);
}

}  // namespace

bool lora_gated_backward_takes(const SwiGluBackwardParams& p, std::int32_t largest_rank,
                               int shared_limit) {
    constexpr std::int64_t most_elements = UINT32_MAX;
    const auto* behind_dgate = static_cast<const Bf16*>(p.dgate.data) + p.gate.cols;
    return shared_limit >= most_shared_bytes && largest_rank <= block_ranks &&
           p.gate.type == Element::bf16 && p.codes.codes == nullptr && p.gate.cols > 0 &&
           all_wide({&p.gate, &p.up, &p.dh, &p.dgate, &p.dup}) && p.dup.data == behind_dgate &&
           p.dup.ld == p.dgate.ld && p.gate.ld == p.up.ld &&
           (p.gate.rows + block_rows) * std::max({p.gate.ld, p.dh.ld, p.dgate.ld}) <= most_elements;
}

std::int32_t lora_gated_backward_tile_rows(const LoraGatedParams& p, const LoraRowCuts& cuts,
                                           int processors) {
    return lora_gradient_tile_rows(cuts, pieces(p.product.gate.cols, block_columns), processors);
}

std::int64_t lora_gated_backward_workspace(const LoraGatedParams& p) {
    return lora_gated_backward_bytes(p.tables.tile_count, p.product.gate.cols, p.product.gate.rows);
}

cudaError_t lora_gated_backward(cudaStream_t stream, const LoraGatedParams& p) {
    if (p.product.gate.rows == 0) return cudaSuccess;
    const GatedPass pass = gated_pass(p);
    cudaError_t status = with_function(p.product.function, [&](auto of) {
        using Function = decltype(of);
        return p.adds_down || p.tables.dropout
                   ? launch_gated<Function, true>(stream, pass, p.shared_limit)
                   : launch_gated<Function, false>(stream, pass, p.shared_limit);
    });
    if (status == cudaSuccess) status = finish_backward(stream, pass.b, p.ds);
    return status == cudaSuccess ? finish_grad_a(stream, pass.a) : status;
}

}  // namespace loratrain::kernels
