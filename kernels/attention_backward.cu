#include <cmath>

#include "attention_launch.h"
#include "attention_tile.cuh"

namespace loratrain::kernels {

namespace {

constexpr int tile_rows = attention_backward_rows;
constexpr int warp_rows = 16;
constexpr int half_keys = 32;

/// Shared memory of both kernels: two tiles that stay and two stages of two tiles that stream by.
template <int dim>
constexpr int tiles_bytes = Tile<dim>::bytes(6 * tile_rows);
constexpr int stats_bytes = tile_rows * static_cast<int>(sizeof(float2));

/// row_stats = (lse in units of log 2, rowsum(dO * O)); 16 lanes per row and head.
__global__ void row_stats_kernel(const __grid_constant__ AttentionBackwardParams p) {
    const AttentionParams& forward = p.forward;
    const std::int64_t item =
        (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 16;
    const int chunk = static_cast<int>(threadIdx.x) % 16;
    const bool valid = item < forward.q.rows * forward.heads;
    const std::int64_t row = item / forward.heads;
    const int head = static_cast<int>(item % forward.heads);
    float sum = 0.0F;
    if (valid && chunk * 8 < forward.head_dim) {
        const int column = head * forward.head_dim + chunk * 8;
        const uint4 o = *reinterpret_cast<const uint4*>(static_cast<const Bf16*>(forward.o.data) +
                                                        row * forward.o.ld + column);
        const uint4 d_o = *reinterpret_cast<const uint4*>(static_cast<const Bf16*>(p.d_o.data) +
                                                          row * p.d_o.ld + column);
        const std::uint32_t left[4] = {o.x, o.y, o.z, o.w};
        const std::uint32_t right[4] = {d_o.x, d_o.y, d_o.z, d_o.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sum += low_half(left[i]) * low_half(right[i]);
            sum += high_half(left[i]) * high_half(right[i]);
        }
    }
#pragma unroll
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step);
    if (valid && chunk == 0) {
        p.row_stats[head * forward.q.rows + row] = {forward.lse[item] * log2_e, sum};
    }
}

/// The query tiles that one key-value head meets, head by head of its group.
struct QueryWalk {
    int head;
    int begin;

    __device__ __forceinline__ void next(const AttentionTile& tile, int end) {
        begin += tile_rows;
        if (begin >= end) {
            begin = tile.begin;
            ++head;
        }
    }
};

template <int dim>
__device__ __forceinline__ void load_queries(const AttentionBackwardParams& p,
                                             const AttentionTile& tile, const QueryWalk& at,
                                             std::uint32_t target, std::uint32_t stats_target) {
    const AttentionParams& forward = p.forward;
    Tile<dim>::template load<tile_rows>(
        target, head_rows(forward.q, tile, at.head, forward.head_dim), at.begin);
    Tile<dim>::template load<tile_rows>(target + Tile<dim>::bytes(tile_rows),
                                        head_rows(p.d_o, tile, at.head, forward.head_dim),
                                        at.begin);
    const int row = static_cast<int>(threadIdx.x);
    if (row < tile_rows) {
        const float2* stats = p.row_stats + at.head * forward.q.rows + tile.first + at.begin + row;
        copy_8_async(stats_target + row * static_cast<int>(sizeof(float2)), stats,
                     at.begin + row < tile.length ? 8 : 0);
    }
    commit_copies();
}

/// Scores in units of log 2, and with a cap what they are capped to.
struct ScoreScale {
    float scale;  ///< of log 2
    float down;   ///< to the argument of tanh
    float up;     ///< from tanh
    __device__ __forceinline__ explicit ScoreScale(const AttentionParams& p)
        : scale(p.scale * log2_e), down(p.scale / p.soft_cap), up(p.soft_cap * log2_e) {}

    /// The score and `added`.
    template <bool capped>
    __device__ __forceinline__ float of(float score, float added) const {
        if constexpr (capped) return fmaf(tanh_fast(score * down), up, added);
        return fmaf(score, scale, added);
    }
    /// d capped / d score, for scores that are so likely.
    template <bool capped>
    __device__ __forceinline__ float slope(float probability, float lse) const {
        if constexpr (!capped) return 1.0F;
        if (probability == 0.0F) return 0.0F;
        const float t = (__log2f(probability) + lse) / up;
        return 1.0F - t * t;
    }
};

/// Transposed scores (16 keys x 64 queries) to probabilities; with `some_hidden` queries that do
/// not see the key get 0. `ahead` = first query - the warp's first key.
template <bool some_hidden, bool capped>
__device__ __forceinline__ void probabilities(float (&scores)[1][tile_rows / 8][4],
                                              const float2* stats, const ScoreScale& scale,
                                              int ahead, int window, int lane) {
#pragma unroll
    for (int n = 0; n < tile_rows / 8; ++n) {
        const int query = n * 8 + ((lane & 3) << 1);
        const float4 pair = *reinterpret_cast<const float4*>(stats + query);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float lse = (i & 1) == 0 ? pair.x : pair.z;
            float p = exp2_fast(scale.of<capped>(scores[0][n][i], -lse));
            const int distance = ahead + query + (i & 1) - ((lane >> 2) + (i >> 1) * 8);
            if (some_hidden && is_hidden(distance, window)) p = 0.0F;
            scores[0][n][i] = p;
        }
    }
}

/// dK and dV of 64 keys of one key-value head: each warp owns 16 keys, all queries pass by.
template <int dim, bool capped>
__global__ void __launch_bounds__(attention_threads, 2)
    key_value_kernel(const __grid_constant__ AttentionBackwardParams p) {
    extern __shared__ __align__(1024) char shared[];
    const std::uint32_t k_tile = shared_address(shared);
    const std::uint32_t v_tile = k_tile + Tile<dim>::bytes(tile_rows);
    constexpr int stage_bytes = Tile<dim>::bytes(2 * tile_rows);
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int warp = static_cast<int>(threadIdx.x) >> 5;

    const AttentionParams& forward = p.forward;
    const AttentionTile tile = p.key_tiles[blockIdx.x / forward.kv_heads];
    const int kv_head = static_cast<int>(blockIdx.x) % forward.kv_heads;
    const int group = forward.heads / forward.kv_heads;
    const ScoreScale scale(forward);
    const std::uint32_t warp_k = k_tile + warp * Tile<dim>::bytes(warp_rows);
    const std::uint32_t warp_v = v_tile + warp * Tile<dim>::bytes(warp_rows);

    Tile<dim>::template load<tile_rows>(
        k_tile, head_rows(forward.k, tile, kv_head, forward.head_dim), tile.begin);
    Tile<dim>::template load<tile_rows>(
        v_tile, head_rows(forward.v, tile, kv_head, forward.head_dim), tile.begin);
    const int end = query_end(tile, tile_rows, forward.window);
    const int tiles_per_head = (end - tile.begin + tile_rows - 1) / tile_rows;
    QueryWalk walk{kv_head * group, tile.begin};
    load_queries<dim>(p, tile, walk, k_tile + stage_bytes, k_tile + tiles_bytes<dim>);

    float dk[1][dim / 8][4] = {};
    float dv[1][dim / 8][4] = {};
    for (int step = 0; step < group * tiles_per_head; ++step) {
        const int stage = step & 1;
        const int ahead = walk.begin - tile.begin;
        walk.next(tile, end);
        wait_for_copies();
        __syncthreads();
        if (step + 1 < group * tiles_per_head) {
            load_queries<dim>(p, tile, walk, k_tile + (2 - stage) * stage_bytes,
                              k_tile + tiles_bytes<dim> + (1 - stage) * stats_bytes);
        }
        const std::uint32_t q_tile = k_tile + (1 + stage) * stage_bytes;
        const std::uint32_t d_o_tile = q_tile + Tile<dim>::bytes(tile_rows);
        const float2* stats =
            reinterpret_cast<const float2*>(shared + tiles_bytes<dim>) + stage * tile_rows;

        float scores[1][tile_rows / 8][4] = {};
        multiply_rows<dim>(scores, warp_k, q_tile, lane);
        const int warp_ahead = ahead - warp * warp_rows;
        if (ahead == 0 || ahead >= forward.window - (tile_rows - 1)) {
            probabilities<true, capped>(scores, stats, scale, warp_ahead, forward.window, lane);
        } else {
            probabilities<false, capped>(scores, stats, scale, warp_ahead, forward.window, lane);
        }
        multiply_columns<dim>(dv, scores, d_o_tile, lane);
        float d_scores[1][tile_rows / 8][4] = {};
        multiply_rows<dim>(d_scores, warp_v, d_o_tile, lane);
#pragma unroll
        for (int n = 0; n < tile_rows / 8; ++n) {
            const float4 pair = *reinterpret_cast<const float4*>(stats + n * 8 + ((lane & 3) << 1));
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float2 row = (i & 1) == 0 ? float2{pair.x, pair.y} : float2{pair.z, pair.w};
                float gradient = scores[0][n][i] * (d_scores[0][n][i] - row.y);
                if constexpr (capped) gradient *= scale.slope<capped>(scores[0][n][i], row.x);
                d_scores[0][n][i] = gradient;
            }
        }
        multiply_columns<dim>(dk, d_scores, q_tile, lane);
    }

    // Only this warp reads its rows of the K and V tiles, so they may take its output.
    __syncwarp();
    const float scales[2] = {forward.scale, forward.scale};
    const float ones[2] = {1.0F, 1.0F};
    Tile<dim>::store(warp_k, dk[0], scales, lane);
    Tile<dim>::store(warp_v, dv[0], ones, lane);
    __syncwarp();
    const int begin = tile.begin + warp * warp_rows;
    Tile<dim>::template copy_out<warp_rows>(head_rows(p.dk, tile, kv_head, forward.head_dim), begin,
                                            warp_k, lane);
    Tile<dim>::template copy_out<warp_rows>(head_rows(p.dv, tile, kv_head, forward.head_dim), begin,
                                            warp_v, lane);
}

/// dQ of 64 queries of one head: each warp owns 16 queries, the keys before them pass by.
template <int dim, bool capped>
__global__ void __launch_bounds__(attention_threads, 2)
    query_kernel(const __grid_constant__ AttentionBackwardParams p) {
    extern __shared__ __align__(1024) char shared[];
    const std::uint32_t q_tile = shared_address(shared);
    const std::uint32_t d_o_tile = q_tile + Tile<dim>::bytes(tile_rows);
    constexpr int stage_bytes = Tile<dim>::bytes(2 * tile_rows);
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int warp = static_cast<int>(threadIdx.x) >> 5;

    const AttentionParams& forward = p.forward;
    const AttentionTile tile = p.query_tiles[blockIdx.x / forward.heads];
    const int head = static_cast<int>(blockIdx.x) % forward.heads;
    const int kv_head = head / (forward.heads / forward.kv_heads);
    const HeadRows k = head_rows(forward.k, tile, kv_head, forward.head_dim);
    const HeadRows v = head_rows(forward.v, tile, kv_head, forward.head_dim);
    const ScoreScale scale(forward);

    Tile<dim>::template load<tile_rows>(q_tile, head_rows(forward.q, tile, head, forward.head_dim),
                                        tile.begin);
    Tile<dim>::template load<tile_rows>(d_o_tile, head_rows(p.d_o, tile, head, forward.head_dim),
                                        tile.begin);
    const int key_begin = first_key_tile(tile.begin, forward.window, tile_rows);
    Tile<dim>::template load<tile_rows>(q_tile + stage_bytes, k, key_begin);
    Tile<dim>::template load<tile_rows>(q_tile + stage_bytes + Tile<dim>::bytes(tile_rows), v,
                                        key_begin);
    commit_copies();

    float2 stats[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = tile.begin + warp * warp_rows + half * 8 + (lane >> 2);
        stats[half] = row < tile.length ? p.row_stats[head * forward.q.rows + tile.first + row]
                                        : float2{0.0F, 0.0F};
    }
    wait_for_copies();
    __syncthreads();
    std::uint32_t q[dim / 16][4];
    std::uint32_t d_o[dim / 16][4];
    const std::uint32_t warp_bytes = warp * Tile<dim>::bytes(warp_rows);
#pragma unroll
    for (int k_step = 0; k_step < dim / 16; ++k_step) {
        load_fragments(q[k_step],
                       Tile<dim>::step(Tile<dim>::fragment(q_tile + warp_bytes, lane), k_step));
        load_fragments(d_o[k_step],
                       Tile<dim>::step(Tile<dim>::fragment(d_o_tile + warp_bytes, lane), k_step));
    }

    float dq[1][dim / 8][4] = {};
    for (int key = key_begin; key <= tile.begin; key += tile_rows) {
        const int stage = ((key - key_begin) / tile_rows) & 1;
        wait_for_copies();
        __syncthreads();
        if (key + tile_rows <= tile.begin) {
            const std::uint32_t target = q_tile + (2 - stage) * stage_bytes;
            Tile<dim>::template load<tile_rows>(target, k, key + tile_rows);
            Tile<dim>::template load<tile_rows>(target + Tile<dim>::bytes(tile_rows), v,
                                                key + tile_rows);
            commit_copies();
        }
        const std::uint32_t k_tile = q_tile + (1 + stage) * stage_bytes;
        const std::uint32_t v_tile = k_tile + Tile<dim>::bytes(tile_rows);
        const int ahead = tile.begin - key;
        const bool diagonal = ahead == 0;
        const bool some_hidden = diagonal || ahead >= forward.window - (tile_rows - 1);
#pragma unroll
        for (int first = 0; first < tile_rows; first += half_keys) {
            if (diagonal && first >= (warp + 1) * warp_rows) break;
            const std::uint32_t k_half = k_tile + Tile<dim>::bytes(first);
            float scores[1][half_keys / 8][4] = {};
            float d_scores[1][half_keys / 8][4] = {};
            multiply_rows<dim>(scores[0], q, k_half, lane);
            multiply_rows<dim>(d_scores[0], d_o, v_tile + Tile<dim>::bytes(first), lane);
#pragma unroll
            for (int n = 0; n < half_keys / 8; ++n) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float2 row = stats[i >> 1];
                    float probability = exp2_fast(scale.of<capped>(scores[0][n][i], -row.x));
                    const int column = first + n * 8 + ((lane & 3) << 1) + (i & 1);
                    const int query = warp * warp_rows + (lane >> 2) + (i >> 1) * 8;
                    const bool hidden = is_hidden(ahead + query - column, forward.window);
                    if (some_hidden && hidden) probability = 0.0F;
                    float gradient = probability * (d_scores[0][n][i] - row.y);
                    if constexpr (capped) gradient *= scale.slope<capped>(probability, row.x);
                    d_scores[0][n][i] = gradient;
                }
            }
            multiply_columns<dim>(dq, d_scores, k_half, lane);
        }
    }

    const float scales[2] = {forward.scale, forward.scale};
    Tile<dim>::store(q_tile + warp_bytes, dq[0], scales, lane);
    __syncwarp();
    Tile<dim>::template copy_out<warp_rows>(head_rows(p.dq, tile, head, forward.head_dim),
                                            tile.begin + warp * warp_rows, q_tile + warp_bytes,
                                            lane);
}

template <int dim, bool capped>
cudaError_t launch(cudaStream_t stream, const AttentionBackwardParams& params) {
    constexpr int key_value_bytes = tiles_bytes<dim> + 2 * stats_bytes;
    static_assert(key_value_bytes <= least_shared_bytes);
    cudaError_t error =
        cudaFuncSetAttribute(key_value_kernel<dim, capped>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, key_value_bytes);
    if (error != cudaSuccess) return error;
    error = cudaFuncSetAttribute(query_kernel<dim, capped>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, tiles_bytes<dim>);
    if (error != cudaSuccess) return error;

    const AttentionParams& forward = params.forward;
    constexpr int stats_threads = 256;
    constexpr int rows_per_block = stats_threads / 16;
    const std::int64_t rows = forward.q.rows * forward.heads;
    row_stats_kernel<<<static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block),
                       stats_threads, 0, stream>>>(params);
    key_value_kernel<dim, capped><<<static_cast<unsigned>(params.key_tile_count) * forward.kv_heads,
                                    attention_threads, key_value_bytes, stream>>>(params);
    query_kernel<dim, capped><<<static_cast<unsigned>(params.query_tile_count) * forward.heads,
                                attention_threads, tiles_bytes<dim>, stream>>>(params);
    return cudaGetLastError();
}

template <int dim>
cudaError_t launch(cudaStream_t stream, const AttentionBackwardParams& params) {
    return params.forward.soft_cap > 0.0F ? launch<dim, true>(stream, params)
                                          : launch<dim, false>(stream, params);
}

}  // namespace

cudaError_t attention_backward_tensor(cudaStream_t stream, const AttentionBackwardParams& params) {
    return params.forward.head_dim <= 64 ? launch<64>(stream, params) : launch<128>(stream, params);
}

}  // namespace loratrain::kernels
