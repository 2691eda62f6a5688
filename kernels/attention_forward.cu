#include <cmath>
#include <type_traits>

#include "attention_launch.h"
#include "attention_scores.cuh"
#include "attention_tile.cuh"

namespace loratrain::kernels {

namespace {

constexpr int query_rows = attention_forward_rows;
constexpr int key_rows = 64;
constexpr int warp_rows = 32;
constexpr int stages = 2;

template <int dim>
constexpr int shared_bytes = Tile<dim>::bytes(query_rows + 2 * stages * key_rows);

template <int dim, bool capped, bool sinks>
__global__ void __launch_bounds__(attention_threads, 2)
    forward_kernel(const __grid_constant__ AttentionParams p) {
    extern __shared__ __align__(1024) char shared[];
    const std::uint32_t q_tile = shared_address(shared);
    const std::uint32_t kv_tiles = q_tile + Tile<dim>::bytes(query_rows);
    constexpr int stage_bytes = Tile<dim>::bytes(2 * key_rows);
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int warp = static_cast<int>(threadIdx.x) >> 5;

    const AttentionTile tile = p.tiles[blockIdx.x / p.heads];
    const int head = static_cast<int>(blockIdx.x) % p.heads;
    const int kv_head = head / (p.heads / p.kv_heads);
    const HeadRows k = head_rows(p.k, tile, kv_head, p.head_dim);
    const HeadRows v = head_rows(p.v, tile, kv_head, p.head_dim);
    const int warp_begin = tile.begin + warp * warp_rows;
    const int key_end = min(tile.begin + query_rows, tile.length);
    const float scale = p.scale * log2_e;

    Tile<dim>::template load<query_rows>(q_tile, head_rows(p.q, tile, head, p.head_dim),
                                         tile.begin);
    const int key_begin = first_key_tile(tile.begin, p.sliding_window, key_rows);
    Tile<dim>::template load<key_rows>(kv_tiles, k, key_begin);
    Tile<dim>::template load<key_rows>(kv_tiles + Tile<dim>::bytes(key_rows), v, key_begin);
    commit_copies();

    Rows<dim, warp_rows / 16> rows;
#pragma unroll
    for (int m = 0; m < 2; ++m) rows.largest[m][0] = rows.largest[m][1] = -INFINITY;
    std::uint32_t k_tile = kv_tiles;
    std::uint32_t other_tile = kv_tiles + stage_bytes;
    for (int key = key_begin; key < key_end; key += key_rows) {
        wait_for_copies();
        __syncthreads();
        if (key + key_rows < key_end) {
            Tile<dim>::template load<key_rows>(other_tile, k, key + key_rows);
            Tile<dim>::template load<key_rows>(other_tile + Tile<dim>::bytes(key_rows), v,
                                               key + key_rows);
            commit_copies();
        }
        const int ahead = warp_begin - key;
        const bool sees_some = ahead > -warp_rows && ahead - (key_rows - 1) < p.sliding_window;
        if (sees_some) {
            float scores[2][key_rows / 8][4] = {};
            multiply_rows<dim>(scores, q_tile + warp * Tile<dim>::bytes(warp_rows), k_tile, lane);
            if constexpr (capped) cap_scores(scores, p.scale, p.soft_cap);
            const bool sees_all =
                ahead >= key_rows - 1 && ahead < p.sliding_window - (warp_rows - 1);
            if (!sees_all) hide(scores, ahead, p.sliding_window, lane);
            update_softmax(rows, scores, scale);
            multiply_columns<dim>(rows.o, scores, k_tile + Tile<dim>::bytes(key_rows), lane);
        }
        const std::uint32_t next = other_tile;
        other_tile = k_tile;
        k_tile = next;
    }

    // Only this warp reads its rows of q_tile, so they may take its output.
    __syncwarp();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
        float inverse[2];
        finish_rows<sinks>(rows, m, warp_begin + m * 16, p, tile, head, lane, inverse);
        Tile<dim>::store(q_tile + Tile<dim>::bytes(warp * warp_rows + m * 16), rows.o[m], inverse,
                         lane);
    }
    __syncwarp();
    Tile<dim>::template copy_out<warp_rows>(head_rows(p.o, tile, head, p.head_dim), warp_begin,
                                            q_tile + Tile<dim>::bytes(warp * warp_rows), lane);
}

template <int dim, bool capped, bool sinks>
cudaError_t launch(cudaStream_t stream, const AttentionParams& params) {
    static_assert(shared_bytes<dim> <= least_shared_bytes);
    const auto kernel = forward_kernel<dim, capped, sinks>;
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<dim>);
    if (error != cudaSuccess) return error;
    kernel<<<static_cast<unsigned>(params.tile_count) * params.heads, attention_threads,
             shared_bytes<dim>, stream>>>(params);
    return cudaGetLastError();
}

template <int dim>
cudaError_t launch(cudaStream_t stream, const AttentionParams& params) {
    const auto run = [&](auto capped) {
        return params.sinks == nullptr ? launch<dim, capped(), false>(stream, params)
                                       : launch<dim, capped(), true>(stream, params);
    };
    return params.soft_cap > 0.0F ? run(std::true_type{}) : run(std::false_type{});
}

}  // namespace

cudaError_t attention_forward_tensor(cudaStream_t stream, const AttentionParams& params) {
    return params.head_dim <= 64 ? launch<64>(stream, params) : launch<128>(stream, params);
}

}  // namespace loratrain::kernels
