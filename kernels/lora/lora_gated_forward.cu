#include "kernels/gate.cuh"
#include "kernels/launch.cuh"
#include "lora_finish.cuh"
#include "lora_gated.h"
#include "lora_launch.h"
#include "lora_wide_pass.cuh"

/// h goes to memory and, from the registers in which it is made, into the products with A: a block
/// takes 512 columns, each warp 64 of them, and goes through the rows of a tile 16 at a time. The S
/// of the block's warps are added up every 32 rows.
namespace loratrain::kernels {

using namespace pass;

namespace {

constexpr int forward_columns = wide_warps * line_columns;
static_assert(forward_columns == lora_gated_forward_columns);
constexpr int chunks_of_line = line_columns / chunk_columns;
constexpr int step_rows = 16;
constexpr int fours_of_row = block_ranks / 4;

struct ForwardPass {
    Matrix gate, up, h;
    PassParams s;  ///< x: h; ds: the parts of S
};

/// What the threads of a block share.
struct ForwardShared {
    float4 parts[2][wide_warps][block_rows][fours_of_row];
    uint4 rows[2][block_rows];           ///< dropout_row
    uint4 columns[forward_columns / 8];  ///< dropout_column
    DropoutKeys keys;
};

/// A lane's pieces of 16 rows of gate and up: rows g and g + 8, and 8 columns of either chunk.
struct GateRows {
    uint4 gate[2][chunks_of_line];
    uint4 up[2][chunks_of_line];

    /// `column`: the lane's first; `row`: of lane 0.
    __device__ __forceinline__ void load(const ForwardPass& p, int row, int end, int column) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int own = row + i * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
            for (int c = 0; c < chunks_of_line; ++c) {
                const int at = column + c * chunk_columns;
                gate[i][c] = make_uint4(0, 0, 0, 0);
                up[i][c] = make_uint4(0, 0, 0, 0);
                if (own >= end || at >= p.h.cols) continue;
                gate[i][c] = *reinterpret_cast<const uint4*>(static_cast<const Bf16*>(p.gate.data) +
                                                             own * p.gate.ld + at);
                up[i][c] = *reinterpret_cast<const uint4*>(static_cast<const Bf16*>(p.up.data) +
                                                           own * p.up.ld + at);
            }
        }
    }
};

/// A of a warp's 64 columns as B fragments, [chunk][8 ranks][words of 8 columns].
using LineFactor = std::uint32_t[chunks_of_line][2][4];

__device__ __forceinline__ void load_factor(const ForwardPass& p, const LoraSlotEntry& slot,
                                            int column, LineFactor& factor) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(slot.a) % 16 == 0;
#pragma unroll
    for (int c = 0; c < chunks_of_line; ++c) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const int rank = n * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
            const int at = column + c * chunk_columns;
            float a[wide] = {};
            if (rank < slot.rank && at < p.h.cols) {
                const float* from = slot.a + rank * p.h.cols + at;
                if (aligned) {
                    load<wide>(from, a);
                } else {
                    for (int j = 0; j < wide; ++j) a[j] = from[j];
                }
            }
#pragma unroll
            for (int j = 0; j < wide / 2; ++j) {
                factor[c][n][j] = pack_halves(a[2 * j], a[2 * j + 1]);
            }
        }
    }
}

template <class Function>
__device__ __forceinline__ uint4 gated(const uint4& gate, const uint4& up) {
    float g[wide];
    float u[wide];
    load<wide>(reinterpret_cast<const Bf16*>(&gate), g);
    load<wide>(reinterpret_cast<const Bf16*>(&up), u);
    product<Bf16, Function, wide>(g, u);
    uint4 h;
    store<wide>(reinterpret_cast<Bf16*>(&h), g);
    return h;
}

/// h of 16 rows to memory; s [16, 16 ranks] = drop(h) Aᵀ of the warp's columns, without 1/(1-p).
/// rows: dropout_row of the first of them; dropout 0: none.
template <class Function, bool with_dropout>
__device__ __forceinline__ void make_rows(const ForwardPass& p, const GateRows& from, int row,
                                          int end, int column, const LineFactor& factor,
                                          std::uint32_t dropout, const ForwardShared& shared,
                                          const uint4* rows, float (&s)[2][4]) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int c = 0; c < chunks_of_line; ++c) {
        const int at = column + c * chunk_columns;
        uint4 h[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            h[i] = gated<Function>(from.gate[i][c], from.up[i][c]);
            const int own = row + i * 8 + g;
            if (own < end && at < p.h.cols) {
                store_at_once(static_cast<Bf16*>(p.h.data) + own * p.h.ld + at, h[i]);
            }
        }
        if (with_dropout && dropout > 0) {
            const uint4 columns = shared.columns[at % forward_columns / 8];
            const uint4 bits[2] = {dropout_bits(shared.keys, rows[g], columns),
                                   dropout_bits(shared.keys, rows[g + 8], columns)};
            h[0] = masked(h[0], bits[0], dropout);
            h[1] = masked(h[1], bits[1], dropout);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const std::uint32_t(&a)[4] = factor[c][n];
            multiply_add(s[n], h[0].x, h[1].x, h[0].y, h[1].y, a[0], a[1]);
            multiply_add(s[n], h[0].z, h[1].z, h[0].w, h[1].w, a[2], a[3]);
        }
    }
}

__device__ __forceinline__ void leave_part(const float (&s)[2][4], int first,
                                           float4 (&parts)[block_rows][fours_of_row]) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float4* four = &parts[first + i * 8 + g][place_of_four(i * 8 + g, 2 * n + q / 2)];
            reinterpret_cast<float2*>(four)[q % 2] = make_float2(s[n][i * 2], s[n][i * 2 + 1]);
        }
    }
}

/// Adds up the S that the warps left of the rows from `row` on, 4 ranks of a row per thread.
__device__ __forceinline__ void write_part(
    const PassParams& p, const float4 (&parts)[wide_warps][block_rows][fours_of_row], int row,
    int end, float scale) {
    const int own = static_cast<int>(threadIdx.x) / fours_of_row;
    const int four = static_cast<int>(threadIdx.x) % fours_of_row;
    if (own >= block_rows || row + own >= end) return;
    float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll
    for (const auto& of_warp : parts) {
        add_to(sum, of_warp[own][place_of_four(own, four)]);
    }
    float* to = p.ds + (blockIdx.x * p.x.rows + row + own) * block_ranks + four * 4;
    *reinterpret_cast<float4*>(to) =
        make_float4(scale * sum.x, scale * sum.y, scale * sum.z, scale * sum.w);
}

/// By the first block_rows threads.
__device__ __forceinline__ void find_rows(const LoraTables& tables, std::uint64_t key, int first,
                                          int end, uint4 (&rows)[block_rows]) {
    if (threadIdx.x >= block_rows || first >= end) return;
    const int row = min(first + static_cast<int>(threadIdx.x), end - 1);
    rows[threadIdx.x] = dropout_of_row(key, row_id(tables, row));
}

/// By all threads: what masks need of columns, keys and the first rows.
__device__ __forceinline__ void find_masks(const LoraTables& tables, const LoraTile& tile,
                                           const LoraSlotEntry& slot, ForwardShared& shared) {
    find_rows(tables, slot.dropout_key, tile.begin, tile.end, shared.rows[0]);
    if (threadIdx.x < forward_columns / 8) {
        shared.columns[threadIdx.x] = dropout_of_columns(
            tables, tile, slot.dropout_key, blockIdx.x * (forward_columns / 8) + threadIdx.x);
    }
    if (threadIdx.x == 0) shared.keys = dropout_keys(slot.dropout_key);
    __syncthreads();
}

/// blockIdx.x: the block of columns; blockIdx.y: the tile.
template <class Function, bool with_dropout>
__global__ void __launch_bounds__(wide_threads, blocks_of_processor)
    gated_forward_kernel(ForwardPass p) {
    __shared__ ForwardShared shared;
    let_next_kernel_start();
    wait_for_kernel_before();
    const LoraTables& tables = p.s.tables;
    const LoraTile tile = tables.tiles[blockIdx.y];
    const int column = static_cast<int>(blockIdx.x) * forward_columns +
                       static_cast<int>(threadIdx.x) / 32 * line_columns +
                       static_cast<int>(threadIdx.x) % 4 * 8;
    GateRows rows;
    rows.load(p, tile.begin, tile.end, column);
    LoraSlotEntry slot{};
    if (tile.segment >= 0) slot = tables.slots[tile.slot];
    LineFactor factor = {};
    load_factor(p, slot, column, factor);
    const std::uint32_t dropout = slot.rank > 0 ? slot.dropout : 0;
    if (with_dropout && dropout > 0) find_masks(tables, tile, slot, shared);
    int buffer = 0;
    for (int row = tile.begin; row < tile.end; row += block_rows, buffer ^= 1) {
        if (with_dropout && dropout > 0) {
            find_rows(tables, slot.dropout_key, row + block_rows, tile.end,
                      shared.rows[buffer ^ 1]);
        }
#pragma unroll
        for (int first = 0; first < block_rows; first += step_rows) {
            GateRows next;
            next.load(p, row + first + step_rows, tile.end, column);
            float s[2][4] = {};
            make_rows<Function, with_dropout>(p, rows, row + first, tile.end, column, factor,
                                              dropout, shared, shared.rows[buffer] + first, s);
            leave_part(s, first, shared.parts[buffer][threadIdx.x / 32]);
            rows = next;
        }
        __syncthreads();
        if (slot.rank > 0) {
            write_part(p.s, shared.parts[buffer], row, tile.end, dropout_scale(dropout));
        }
    }
}

template <class Function, bool with_dropout>
cudaError_t launch_forward(cudaStream_t stream, const ForwardPass& p) {
    const dim3 grid(static_cast<unsigned>(pieces(p.h.cols, forward_columns)),
                    static_cast<unsigned>(p.s.tables.tile_count));
    return launch_early(stream, gated_forward_kernel<Function, with_dropout>, grid, wide_threads, 0,
                        p);
}

ForwardPass forward_pass(const LoraGatedForwardParams& p) {
    ForwardPass pass{p.gate, p.up, p.h, {}};
    PassParams& s = pass.s;
    s.x = p.h;
    s.ends[0] = p.h.cols;
    s.tables = p.tables;
    s.tables.most_tiles_of_slot = 1;  // there are no gradients to finish
    s.rank_blocks = 1;
    s.part_columns = forward_columns;
    s.ds = static_cast<float*>(p.workspace);
    return pass;
}

}  // namespace

bool lora_gated_forward_takes(const Matrix& gate, const Matrix& up, const Matrix& h,
                              std::int32_t largest_rank) {
    return largest_rank <= block_ranks && gate.type == Element::bf16 && h.cols > 0 &&
           all_wide({&gate, &up, &h});
}

std::int32_t lora_gated_forward_tile_rows(const LoraGatedForwardParams& p, const LoraRowCuts& cuts,
                                          int processors) {
    const std::int64_t at_once = std::int64_t{processors} * blocks_of_processor;
    const auto in_turn = [&](std::int32_t rows) {
        const std::int64_t blocks = count_tiles(cuts, rows) * pieces(p.h.cols, forward_columns);
        return (blocks + at_once - 1) / at_once * rows;
    };
    std::int32_t best = 128;
    for (const std::int32_t rows : {256, 224, 192, 160, 96}) {
        if (in_turn(rows) < in_turn(best)) best = rows;
    }
    return best;
}

std::int64_t lora_gated_forward_workspace(const LoraGatedForwardParams& p) {
    return lora_gated_forward_bytes(p.h.cols, p.h.rows);
}

cudaError_t lora_gated_forward(cudaStream_t stream, const LoraGatedForwardParams& p) {
    if (p.h.rows == 0) return cudaSuccess;
    const ForwardPass pass = forward_pass(p);
    const cudaError_t status = with_function(p.function, [&](auto of) {
        using Function = decltype(of);
        return p.tables.dropout ? launch_forward<Function, true>(stream, pass)
                                : launch_forward<Function, false>(stream, pass);
    });
    return status != cudaSuccess ? status : finish_backward(stream, pass.s, &p.s, p.again);
}

}  // namespace loratrain::kernels
