#include <cmath>
#include <type_traits>

#include "attention_launch.h"
#include "attention_scores.cuh"
#include "attention_wide.cuh"
#include "launch.cuh"

namespace loratrain::kernels {

namespace {

/// Queries, keys and values of 64 rows.
template <int dim>
constexpr int shared_bytes = 3 * WideTile<dim, wide_rows>::bytes;

template <int dim, bool capped, bool sinks>
__global__ void __launch_bounds__(attention_threads, 2)
    wide_forward_kernel(const __grid_constant__ AttentionParams p) {
    using Rows64 = WideTile<dim, wide_rows>;
    extern __shared__ __align__(1024) char shared[];
    let_next_kernel_start();
    wait_for_kernel_before();
    const std::uint32_t q_tile = shared_address(shared);
    const std::uint32_t k_tile = q_tile + Rows64::bytes;
    const std::uint32_t v_tile = k_tile + Rows64::bytes;
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int warp = static_cast<int>(threadIdx.x) >> 5;

    const AttentionTile tile = p.tiles[blockIdx.x / p.heads];
    const int head = static_cast<int>(blockIdx.x) % p.heads;
    const int kv_head = head / (p.heads / p.kv_heads);
    const HeadRows k = head_rows(p.k, tile, kv_head, p.head_dim);
    const HeadRows v = head_rows(p.v, tile, kv_head, p.head_dim);
    const std::uint32_t warp_q = q_tile + warp * Panel::bytes(wide_warp_rows);
    const int warp_begin = tile.begin + warp * wide_warp_rows;
    const int key_begin = first_key_tile(tile.begin, p.sliding_window, wide_rows);
    const int key_end = min(tile.begin + wide_rows, tile.length);

    Rows64::load(q_tile, head_rows(p.q, tile, head, p.head_dim), tile.begin);
    Rows64::load(k_tile, k, key_begin);
    commit_copies();

    Rows<dim, 1> rows;
    rows.largest[0][0] = rows.largest[0][1] = -INFINITY;
    for (int key = key_begin; key < key_end; key += wide_rows) {
        wait_for_copies();
        __syncthreads();
        Rows64::load(v_tile, v, key);
        commit_copies();
        const int ahead = warp_begin - key;
        const bool sees_some = ahead - (wide_rows - 1) < p.sliding_window;
        float scores[1][wide_rows / 8][4] = {};
        if (sees_some) {
            add_wide_scores<dim>(scores[0], warp_q, k_tile, lane);
            if constexpr (capped) cap_scores(scores, p.scale, p.soft_cap);
            const bool sees_all =
                ahead >= wide_rows - 1 && ahead < p.sliding_window - (wide_warp_rows - 1);
            if (!sees_all) hide(scores, ahead, p.sliding_window, lane);
            update_softmax(rows, scores, p.scale * log2_e);
        }
        wait_for_copies();
        __syncthreads();
        if (key + wide_rows < key_end) {
            Rows64::load(k_tile, k, key + wide_rows);
            commit_copies();
        }
        if (sees_some) add_wide_sums<dim>(rows.o[0], scores[0], v_tile, lane);
    }

    float inverse[2];
    finish_rows<sinks>(rows, 0, warp_begin, p, tile, head, lane, inverse);
    Rows64::store(warp_q, rows.o[0], inverse, head_rows(p.o, tile, head, p.head_dim), warp_begin,
                  lane);
}

template <int dim, bool capped, bool sinks>
cudaError_t launch(cudaStream_t stream, const AttentionParams& params) {
    static_assert(shared_bytes<dim> <= least_shared_bytes);
    return launch_with_shared<wide_forward_kernel<dim, capped, sinks>, shared_bytes<dim>>(
        stream, params.shared_limit, static_cast<unsigned>(params.tile_count * params.heads),
        attention_threads, params);
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

cudaError_t attention_forward_wide(cudaStream_t stream, const AttentionParams& params) {
    return params.head_dim <= 192 ? launch<192>(stream, params) : launch<256>(stream, params);
}

}  // namespace loratrain::kernels
