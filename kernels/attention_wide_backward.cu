#include "attention_launch.h"
#include "attention_scores.cuh"
#include "attention_wide.cuh"
#include "launch.cuh"

namespace loratrain::kernels {

namespace {

/// Rows that stream by where gradients of scores are made: two tiles of them beside two resident
/// ones.
constexpr int streamed_rows = 32;
constexpr int row_stats_bytes = static_cast<int>(sizeof(float2));

template <int dim>
using Resident = WideTile<dim, wide_rows>;
template <int dim>
using Streamed = WideTile<dim, streamed_rows>;

/// Two resident tiles and two streamed ones, or three tiles of 64 rows; statistics of 64 queries.
template <int dim>
constexpr int tiles_bytes = 3 * Resident<dim>::bytes;
static_assert(2 * Streamed<256>::bytes == Resident<256>::bytes);
template <int dim>
constexpr int shared_bytes = tiles_bytes<dim> + wide_rows* row_stats_bytes;

/// Copies the statistics of queries [begin, begin + rows) of a head to `target`.
template <int rows>
__device__ __forceinline__ void load_stats(const AttentionBackwardParams& p,
                                           const AttentionTile& tile, int head, int begin,
                                           std::uint32_t target) {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= rows) return;
    const float2* stats = p.row_stats + head * p.forward.q.rows + tile.first + begin + row;
    copy_8_async(target + row * row_stats_bytes, stats, begin + row < tile.length ? 8 : 0);
}

/// What one block computes of a tile of keys and one key-value head; the queries of the group's
/// heads pass by, `rows` at a time.
template <int dim, int rows>
struct KeyBlock {
    AttentionTile tile;
    int kv_head;
    int group;  ///< heads
    int end;    ///< of the queries that see the keys
    int lane = static_cast<int>(threadIdx.x) & 31;
    int warp = static_cast<int>(threadIdx.x) >> 5;

    __device__ __forceinline__ KeyBlock(const AttentionBackwardParams& p, int block) {
        const AttentionParams& forward = p.forward;
        tile = p.key_tiles[block / forward.kv_heads];
        kv_head = block % forward.kv_heads;
        group = forward.heads / forward.kv_heads;
        end = query_end(tile, wide_rows, forward.sliding_window);
    }
    __device__ __forceinline__ QueryWalk<rows> first() const {
        return {kv_head * group, tile.begin};
    }
    __device__ __forceinline__ int steps() const {
        return group * ((end - tile.begin + rows - 1) / rows);
    }
    /// First query of a step - the warp's first key.
    __device__ __forceinline__ int ahead(const QueryWalk<rows>& at) const {
        return at.begin - tile.begin - warp * wide_warp_rows;
    }
    /// True if some of a step's queries see some of the warp's keys.
    static __device__ __forceinline__ bool sees_some(int ahead, int sliding_window) {
        return ahead > -rows && ahead - (wide_warp_rows - 1) < sliding_window;
    }

    /// Transposed scores to probabilities.
    template <bool capped>
    __device__ __forceinline__ void find_probabilities(float (&scores)[1][rows / 8][4],
                                                       const float2* stats, const ScoreScale& scale,
                                                       int ahead, int sliding_window) const {
        if (ahead < wide_warp_rows - 1 || ahead > sliding_window - rows) {
            probabilities<true, capped>(scores, stats, scale, ahead, sliding_window, lane);
        } else {
            probabilities<false, capped>(scores, stats, scale, ahead, sliding_window, lane);
        }
    }

    __device__ __forceinline__ void store(std::uint32_t warp_rows, const float (&sums)[dim / 8][4],
                                          float scale, const Matrix& target, int head_dim) const {
        const float scales[2] = {scale, scale};
        Resident<dim>::store(warp_rows, sums, scales, head_rows(target, tile, kv_head, head_dim),
                             tile.begin + warp * wide_warp_rows, lane);
    }
};

/// dV of 64 keys of one key-value head: 64 queries and their outputs' gradients pass by.
template <int dim, bool capped>
__device__ __forceinline__ void sum_values(const AttentionBackwardParams& p, int number,
                                           char* shared) {
    const KeyBlock<dim, wide_rows> block(p, number);
    const AttentionTile& tile = block.tile;
    const AttentionParams& forward = p.forward;
    const std::uint32_t k_tile = shared_address(shared);
    const std::uint32_t q_tile = k_tile + Resident<dim>::bytes;
    const std::uint32_t d_o_tile = q_tile + Resident<dim>::bytes;
    const std::uint32_t stats_at = k_tile + tiles_bytes<dim>;
    const auto* const stats = reinterpret_cast<const float2*>(shared + tiles_bytes<dim>);
    const std::uint32_t warp_k = k_tile + block.warp * Panel::bytes(wide_warp_rows);
    const ScoreScale scale(forward);
    const auto load_queries = [&](const QueryWalk<wide_rows>& at) {
        Resident<dim>::load(q_tile, head_rows(forward.q, tile, at.head, forward.head_dim),
                            at.begin);
        load_stats<wide_rows>(p, tile, at.head, at.begin, stats_at);
        commit_copies();
    };

    Resident<dim>::load(k_tile, head_rows(forward.k, tile, block.kv_head, forward.head_dim),
                        tile.begin);
    QueryWalk<wide_rows> walk = block.first();
    load_queries(walk);
    float dv[dim / 8][4] = {};
    for (int left = block.steps(); left > 0; --left) {
        wait_for_copies();
        __syncthreads();
        Resident<dim>::load(d_o_tile, head_rows(p.d_o, tile, walk.head, forward.head_dim),
                            walk.begin);
        commit_copies();
        const int ahead = block.ahead(walk);
        const bool sees_some = block.sees_some(ahead, forward.sliding_window);
        float scores[1][wide_rows / 8][4] = {};
        if (sees_some) {
            add_wide_scores<dim>(scores[0], warp_k, q_tile, block.lane);
            block.template find_probabilities<capped>(scores, stats, scale, ahead,
                                                      forward.sliding_window);
        }
        walk.next(tile, block.end);
        wait_for_copies();
        __syncthreads();
        if (left > 1) load_queries(walk);
        if (sees_some) add_wide_sums<dim>(dv, scores[0], d_o_tile, block.lane);
    }
    block.store(warp_k, dv, 1.0F, p.dv, forward.head_dim);
}

/// dK of 64 keys of one key-value head: 32 queries and their outputs' gradients pass by.
template <int dim, bool capped>
__device__ __forceinline__ void sum_keys(const AttentionBackwardParams& p, int number,
                                         char* shared) {
    const KeyBlock<dim, streamed_rows> block(p, number);
    const AttentionTile& tile = block.tile;
    const AttentionParams& forward = p.forward;
    const std::uint32_t k_tile = shared_address(shared);
    const std::uint32_t v_tile = k_tile + Resident<dim>::bytes;
    const std::uint32_t q_tile = v_tile + Resident<dim>::bytes;
    const std::uint32_t d_o_tile = q_tile + Streamed<dim>::bytes;
    const std::uint32_t stats_at = k_tile + tiles_bytes<dim>;
    const auto* const stats = reinterpret_cast<const float2*>(shared + tiles_bytes<dim>);
    const std::uint32_t warp_offset = block.warp * Panel::bytes(wide_warp_rows);
    const ScoreScale scale(forward);
    const auto load_output_gradients = [&](const QueryWalk<streamed_rows>& at) {
        Streamed<dim>::load(d_o_tile, head_rows(p.d_o, tile, at.head, forward.head_dim), at.begin);
        commit_copies();
    };

    Resident<dim>::load(k_tile, head_rows(forward.k, tile, block.kv_head, forward.head_dim),
                        tile.begin);
    Resident<dim>::load(v_tile, head_rows(forward.v, tile, block.kv_head, forward.head_dim),
                        tile.begin);
    QueryWalk<streamed_rows> walk = block.first();
    load_output_gradients(walk);
    float dk[dim / 8][4] = {};
    for (int left = block.steps(); left > 0; --left) {
        wait_for_copies();
        __syncthreads();
        Streamed<dim>::load(q_tile, head_rows(forward.q, tile, walk.head, forward.head_dim),
                            walk.begin);
        load_stats<streamed_rows>(p, tile, walk.head, walk.begin, stats_at);
        commit_copies();
        const int ahead = block.ahead(walk);
        const bool sees_some = block.sees_some(ahead, forward.sliding_window);
        float gradients[1][streamed_rows / 8][4] = {};
        if (sees_some) {
            add_wide_scores<dim>(gradients[0], v_tile + warp_offset, d_o_tile, block.lane);
        }
        walk.next(tile, block.end);
        wait_for_copies();
        __syncthreads();
        if (left > 1) load_output_gradients(walk);
        if (!sees_some) continue;
        float scores[1][streamed_rows / 8][4] = {};
        add_wide_scores<dim>(scores[0], k_tile + warp_offset, q_tile, block.lane);
        block.template find_probabilities<capped>(scores, stats, scale, ahead,
                                                  forward.sliding_window);
        key_score_gradients<capped>(gradients, scores, stats, scale, block.lane);
        add_wide_sums<dim>(dk, gradients[0], q_tile, block.lane);
    }
    block.store(k_tile + warp_offset, dk, forward.scale, p.dk, forward.head_dim);
}

/// dQ of 64 queries of one head: 32 keys and values pass by.
template <int dim, bool capped>
__device__ __forceinline__ void sum_queries(const AttentionBackwardParams& p, int block,
                                            char* shared) {
    const AttentionParams& forward = p.forward;
    const AttentionTile tile = p.query_tiles[block / forward.heads];
    const int head = block % forward.heads;
    const int kv_head = head / (forward.heads / forward.kv_heads);
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int warp = static_cast<int>(threadIdx.x) >> 5;
    const std::uint32_t q_tile = shared_address(shared);
    const std::uint32_t d_o_tile = q_tile + Resident<dim>::bytes;
    const std::uint32_t k_tile = d_o_tile + Resident<dim>::bytes;
    const std::uint32_t v_tile = k_tile + Streamed<dim>::bytes;
    const std::uint32_t warp_offset = warp * Panel::bytes(wide_warp_rows);
    const HeadRows k = head_rows(forward.k, tile, kv_head, forward.head_dim);
    const HeadRows v = head_rows(forward.v, tile, kv_head, forward.head_dim);
    const ScoreScale scale(forward);
    const int warp_begin = tile.begin + warp * wide_warp_rows;
    const int key_begin = first_key_tile(tile.begin, forward.sliding_window, streamed_rows);
    const int key_end = min(tile.begin + wide_rows, tile.length);

    Resident<dim>::load(q_tile, head_rows(forward.q, tile, head, forward.head_dim), tile.begin);
    Resident<dim>::load(d_o_tile, head_rows(p.d_o, tile, head, forward.head_dim), tile.begin);
    Streamed<dim>::load(v_tile, v, key_begin);
    commit_copies();
    float2 stats[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = warp_begin + half * 8 + (lane >> 2);
        stats[half] = row < tile.length ? p.row_stats[head * forward.q.rows + tile.first + row]
                                        : float2{0.0F, 0.0F};
    }

    float dq[dim / 8][4] = {};
    for (int key = key_begin; key < key_end; key += streamed_rows) {
        wait_for_copies();
        __syncthreads();
        Streamed<dim>::load(k_tile, k, key);
        commit_copies();
        const int ahead = warp_begin - key;
        const bool sees_some =
            ahead > -wide_warp_rows && ahead - (streamed_rows - 1) < forward.sliding_window;
        float gradients[1][streamed_rows / 8][4] = {};
        if (sees_some) {
            add_wide_scores<dim>(gradients[0], d_o_tile + warp_offset, v_tile, lane);
        }
        wait_for_copies();
        __syncthreads();
        if (key + streamed_rows < key_end) {
            Streamed<dim>::load(v_tile, v, key + streamed_rows);
            commit_copies();
        }
        if (!sees_some) continue;
        float scores[1][streamed_rows / 8][4] = {};
        add_wide_scores<dim>(scores[0], q_tile + warp_offset, k_tile, lane);
        const bool some_hidden =
            ahead < streamed_rows - 1 || ahead > forward.sliding_window - wide_warp_rows;
        query_score_gradients<capped>(gradients, scores, stats, scale, some_hidden, ahead,
                                      forward.sliding_window, lane);
        add_wide_sums<dim>(dq, gradients[0], k_tile, lane);
    }
    const float scales[2] = {forward.scale, forward.scale};
    Resident<dim>::store(q_tile + warp_offset, dq, scales,
                         head_rows(p.dq, tile, head, forward.head_dim), warp_begin, lane);
}

/// Blocks that take longest first: those of dK, of dV, of dQ.
template <int dim, bool capped>
__global__ void __launch_bounds__(attention_threads, 2)
    wide_backward_kernel(const __grid_constant__ AttentionBackwardParams p) {
    extern __shared__ __align__(1024) char shared[];
    let_next_kernel_start();
    wait_for_kernel_before();
    const auto block = static_cast<int>(blockIdx.x);
    const int of_keys = p.key_tile_count * p.forward.kv_heads;
    if (block < of_keys) {
        sum_keys<dim, capped>(p, block, shared);
    } else if (block < 2 * of_keys) {
        sum_values<dim, capped>(p, block - of_keys, shared);
    } else {
        sum_queries<dim, capped>(p, block - 2 * of_keys, shared);
    }
}

template <int dim, bool capped>
cudaError_t launch(cudaStream_t stream, const AttentionBackwardParams& params) {
    static_assert(shared_bytes<dim> <= least_shared_bytes);
    const AttentionParams& forward = params.forward;
    const cudaError_t error = attention_row_stats(stream, params);
    if (error != cudaSuccess) return error;
    const int blocks =
        2 * params.key_tile_count * forward.kv_heads + params.query_tile_count * forward.heads;
    return launch_with_shared<wide_backward_kernel<dim, capped>, shared_bytes<dim>>(
        stream, forward.shared_limit, static_cast<unsigned>(blocks), attention_threads, params);
}

template <int dim>
cudaError_t launch(cudaStream_t stream, const AttentionBackwardParams& params) {
    return params.forward.soft_cap > 0.0F ? launch<dim, true>(stream, params)
                                          : launch<dim, false>(stream, params);
}

}  // namespace

cudaError_t attention_backward_wide(cudaStream_t stream, const AttentionBackwardParams& params) {
    return params.forward.head_dim <= 192 ? launch<192>(stream, params)
                                          : launch<256>(stream, params);
}

}  // namespace loratrain::kernels
