#include <cooperative_groups.h>

#include "attention_launch.h"
#include "attention_scores.cuh"
#include "attention_tile.cuh"
#include "launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr int tile_rows = attention_backward_rows;
constexpr int warp_rows = 16;
constexpr int half_keys = 32;

/// Shared memory of both kernels: two tiles that stay and two stages of two tiles that stream by.
template <int dim>
constexpr int tiles_bytes = Tile<dim>::bytes(6 * tile_rows);
constexpr int stats_bytes = tile_rows * static_cast<int>(sizeof(float2));

/// row_stats = (lse in units of log 2, rowsum(dO * O)); so many lanes per row and head, of 8
/// columns each.
template <int lanes>
__global__ void row_stats_kernel(const __grid_constant__ AttentionBackwardParams p) {
    let_next_kernel_start();
    wait_for_kernel_before();
    const AttentionParams& forward = p.forward;
    const std::int64_t item =
        (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / lanes;
    const int chunk = static_cast<int>(threadIdx.x) % lanes;
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
    for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step);
    if (valid && chunk == 0) {
        p.row_stats[head * forward.q.rows + row] = {forward.lse[item] * log2_e, sum};
    }
}

template <int dim>
__device__ __forceinline__ void load_queries(const AttentionBackwardParams& p,
                                             const AttentionTile& tile,
                                             const QueryWalk<tile_rows>& at, std::uint32_t target,
                                             std::uint32_t stats_target) {
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

/// Rows of dK or dV in fp32 where several blocks have a share of their sums.
template <int dim>
constexpr int shared_ld = dim + 8;

/// A warp's 16 x dim sums in fp32 to its rows of [64, shared_ld].
template <int dim>
__device__ __forceinline__ void share_sums(float* sums, const float (&c)[dim / 8][4], int warp,
                                           int lane) {
    float* target = sums + (warp * warp_rows + (lane >> 2)) * shared_ld<dim> + ((lane & 3) << 1);
#pragma unroll
    for (int n = 0; n < dim / 8; ++n) {
        *reinterpret_cast<float2*>(target + n * 8) = make_float2(c[n][0], c[n][1]);
        *reinterpret_cast<float2*>(target + n * 8 + 8 * shared_ld<dim>) =
            make_float2(c[n][2], c[n][3]);
    }
}

/// dK and dV of a tile from what the `parts` blocks of a cluster have in `sums`, dK before dV: each
/// block a share of the rows, added in the order of the blocks.
template <int dim>
__device__ __forceinline__ void add_shares(const AttentionBackwardParams& p,
                                           const AttentionTile& tile, int kv_head, int part,
                                           int parts, float* sums) {
#if __CUDA_ARCH__ >= 900
    const auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    constexpr int fours = dim / 4;
    const AttentionParams& forward = p.forward;
    for (int i = part * attention_threads + static_cast<int>(threadIdx.x);
         i < 2 * tile_rows * fours; i += parts * attention_threads) {
        const int row = i / fours;
        const int column = i % fours * 4;
        const int key = tile.begin + row % tile_rows;
        if (key >= tile.length || column >= forward.head_dim) continue;
        float4 sum = {};
        for (int other = 0; other < parts; ++other) {
            const float4 term = *reinterpret_cast<const float4*>(
                cluster.map_shared_rank(sums, other) + row * shared_ld<dim> + column);
            sum = {sum.x + term.x, sum.y + term.y, sum.z + term.z, sum.w + term.w};
        }
        const bool of_keys = row < tile_rows;
        const float scale = of_keys ? forward.scale : 1.0F;
        const HeadRows target = head_rows(of_keys ? p.dk : p.dv, tile, kv_head, forward.head_dim);
        *reinterpret_cast<uint2*>(target.data + static_cast<std::int64_t>(key) * target.ld +
                                  column) =
            make_uint2(pack(sum.x * scale, sum.y * scale), pack(sum.z * scale, sum.w * scale));
    }
    cluster.sync();
#endif
}

/// dK and dV of 64 keys of one key-value head: each warp owns 16 keys, all queries pass by; those
/// of the heads that are part `part` of the group's.
template <int dim, bool capped>
__device__ __forceinline__ void sum_keys_and_values(const AttentionBackwardParams& p, int block,
                                                    int part, int parts, char* shared) {
    const std::uint32_t k_tile = shared_address(shared);
    const std::uint32_t v_tile = k_tile + Tile<dim>::bytes(tile_rows);
    constexpr int stage_bytes = Tile<dim>::bytes(2 * tile_rows);
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int warp = static_cast<int>(threadIdx.x) >> 5;

    const AttentionParams& forward = p.forward;
    const AttentionTile tile = p.key_tiles[block / forward.kv_heads];
    const int kv_head = block % forward.kv_heads;
    const int group = forward.heads / forward.kv_heads / parts;
    const ScoreScale scale(forward);
    const std::uint32_t warp_k = k_tile + warp * Tile<dim>::bytes(warp_rows);
    const std::uint32_t warp_v = v_tile + warp * Tile<dim>::bytes(warp_rows);

    Tile<dim>::template load<tile_rows>(
        k_tile, head_rows(forward.k, tile, kv_head, forward.head_dim), tile.begin);
    Tile<dim>::template load<tile_rows>(
        v_tile, head_rows(forward.v, tile, kv_head, forward.head_dim), tile.begin);
    const int end = query_end(tile, tile_rows, forward.sliding_window);
    const int tiles_per_head = (end - tile.begin + tile_rows - 1) / tile_rows;
    QueryWalk<tile_rows> walk{(kv_head * parts + part) * group, tile.begin};
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
        if (ahead == 0 || ahead >= forward.sliding_window - (tile_rows - 1)) {
            probabilities<true, capped>(scores, stats, scale, warp_ahead, forward.sliding_window,
                                        lane);
        } else {
            probabilities<false, capped>(scores, stats, scale, warp_ahead, forward.sliding_window,
                                         lane);
        }
        multiply_columns<dim>(dv, scores, d_o_tile, lane);
        float d_scores[1][tile_rows / 8][4] = {};
        multiply_rows<dim>(d_scores, warp_v, d_o_tile, lane);
        key_score_gradients<capped>(d_scores, scores, stats, scale, lane);
        multiply_columns<dim>(dk, d_scores, q_tile, lane);
    }

    if (parts > 1) {
        auto* const sums = reinterpret_cast<float*>(shared);
        __syncthreads();
        share_sums<dim>(sums, dk[0], warp, lane);
        share_sums<dim>(sums + tile_rows * shared_ld<dim>, dv[0], warp, lane);
        add_shares<dim>(p, tile, kv_head, part, parts, sums);
        return;
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
__device__ __forceinline__ void sum_queries(const AttentionBackwardParams& p, int block,
                                            char* shared) {
    const std::uint32_t q_tile = shared_address(shared);
    const std::uint32_t d_o_tile = q_tile + Tile<dim>::bytes(tile_rows);
    constexpr int stage_bytes = Tile<dim>::bytes(2 * tile_rows);
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int warp = static_cast<int>(threadIdx.x) >> 5;

    const AttentionParams& forward = p.forward;
    const AttentionTile tile = p.query_tiles[block / forward.heads];
    const int head = block % forward.heads;
    const int kv_head = head / (forward.heads / forward.kv_heads);
    const HeadRows k = head_rows(forward.k, tile, kv_head, forward.head_dim);
    const HeadRows v = head_rows(forward.v, tile, kv_head, forward.head_dim);
    const ScoreScale scale(forward);

    Tile<dim>::template load<tile_rows>(q_tile, head_rows(forward.q, tile, head, forward.head_dim),
                                        tile.begin);
    Tile<dim>::template load<tile_rows>(d_o_tile, head_rows(p.d_o, tile, head, forward.head_dim),
                                        tile.begin);
    const int key_begin = first_key_tile(tile.begin, forward.sliding_window, tile_rows);
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
        const bool some_hidden = diagonal || ahead >= forward.sliding_window - (tile_rows - 1);
#pragma unroll
        for (int first = 0; first < tile_rows; first += half_keys) {
            if (diagonal && first >= (warp + 1) * warp_rows) break;
            const std::uint32_t k_half = k_tile + Tile<dim>::bytes(first);
            float scores[1][half_keys / 8][4] = {};
            float d_scores[1][half_keys / 8][4] = {};
            multiply_rows<dim>(scores[0], q, k_half, lane);
            multiply_rows<dim>(d_scores[0], d_o, v_tile + Tile<dim>::bytes(first), lane);
            query_score_gradients<capped>(d_scores, scores, stats, scale, some_hidden,
                                          ahead + warp * warp_rows - first, forward.sliding_window,
                                          lane);
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

/// Blocks at once on a multiprocessor: as many as registers are enough for.
template <int dim>
constexpr int blocks_of_processor = dim <= 64 ? 3 : 2;

/// Keys' blocks first, clusters of `parts` for the heads of a group: they take longest, and
/// queries' fill the multiprocessors that they leave.
template <int dim, bool capped>
__global__ void __launch_bounds__(attention_threads, blocks_of_processor<dim>)
    backward_kernel(const __grid_constant__ AttentionBackwardParams p, int parts) {
    extern __shared__ __align__(1024) char shared[];
    let_next_kernel_start();
    wait_for_kernel_before();
    const auto block = static_cast<int>(blockIdx.x);
    const int of_keys = p.key_tile_count * p.forward.kv_heads * parts;
    if (block < of_keys) {
        sum_keys_and_values<dim, capped>(p, block / parts, block % parts, parts, shared);
    } else {
        sum_queries<dim, capped>(p, block - of_keys, shared);
    }
}

/// Into how many parts the heads of a group are cut: so many that no block of a long sample's first
/// keys computes when all others are done, and no more, as a part costs time of its own.
template <int dim>
int parts_of_group(const AttentionBackwardParams& p) {
    constexpr int most_parts = 4;
    constexpr std::int64_t of_keys = 4;  // products of a pair of tiles
    constexpr std::int64_t of_both = of_keys + 3;
    static const int processors = count_processors();
    const std::int64_t group = p.forward.heads / p.forward.kv_heads;
    const std::int64_t longest = p.longest_tiles * group * of_keys;
    const std::int64_t usual =
        p.tile_pairs * p.forward.heads * of_both / (processors * blocks_of_processor<dim>);
    int parts = 1;
    for (int more = 2; more <= most_parts && longest > usual * parts; ++more) {
        if (group % more == 0) parts = more;
    }
    return parts;
}

template <int dim, bool capped>
cudaError_t launch(cudaStream_t stream, const AttentionBackwardParams& params) {
    constexpr int bytes = tiles_bytes<dim> + 2 * stats_bytes;
    static_assert(bytes <= least_shared_bytes);
    static_assert(2 * tile_rows * shared_ld<dim> * static_cast<int>(sizeof(float)) <= bytes);
    const auto kernel = backward_kernel<dim, capped>;
    static const bool has_clusters = is_code_for_hopper(kernel);
    static const cudaError_t raised =
        allow_shared(reinterpret_cast<const void*>(kernel), bytes, params.forward.shared_limit);
    if (raised != cudaSuccess) return raised;
    const AttentionParams& forward = params.forward;
    const cudaError_t error = attention_row_stats(stream, params);
    if (error != cudaSuccess) return error;
    const int parts = has_clusters ? parts_of_group<dim>(params) : 1;
    // `parts` divide the heads, and so all blocks.
    const int blocks =
        params.key_tile_count * forward.kv_heads * parts + params.query_tile_count * forward.heads;
    LaunchShape shape;
    shape.grid = static_cast<unsigned>(blocks);
    shape.threads = attention_threads;
    shape.shared = bytes;
    shape.cluster = static_cast<unsigned>(parts);
    return launch_early(stream, kernel, shape, params, parts);
}

template <int dim>
cudaError_t launch(cudaStream_t stream, const AttentionBackwardParams& params) {
    return params.forward.soft_cap > 0.0F ? launch<dim, true>(stream, params)
                                          : launch<dim, false>(stream, params);
}

template <int lanes>
cudaError_t launch_row_stats(cudaStream_t stream, const AttentionBackwardParams& params) {
    constexpr int rows_per_block = block_threads / lanes;
    const std::int64_t rows = params.forward.q.rows * params.forward.heads;
    return launch_early(stream, row_stats_kernel<lanes>,
                        static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block),
                        block_threads, 0, params);
}

}  // namespace

cudaError_t attention_row_stats(cudaStream_t stream, const AttentionBackwardParams& params) {
    return params.forward.head_dim <= attention_narrow_head_dim
               ? launch_row_stats<16>(stream, params)
               : launch_row_stats<32>(stream, params);
}

cudaError_t attention_backward_tensor(cudaStream_t stream, const AttentionBackwardParams& params) {
    return params.forward.head_dim <= 64 ? launch<64>(stream, params) : launch<128>(stream, params);
}

}  // namespace loratrain::kernels
