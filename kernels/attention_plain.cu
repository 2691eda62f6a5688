#include <cmath>

#include "attention_launch.h"
#include "device_math.cuh"

namespace loratrain::kernels {

namespace {

constexpr int tile_rows = attention_plain_rows;
constexpr int lanes = 8;  ///< threads that share a row
constexpr int threads = tile_rows * lanes;
constexpr int keys_per_thread = tile_rows / lanes;
constexpr int score_ld = tile_rows + 1;

/// One head's columns of a sample's rows in device memory.
template <class T>
struct HeadRows {
    T* data;
    std::int64_t ld;
    int length;
};

template <class T>
__device__ __forceinline__ HeadRows<T> head_rows(const Matrix& matrix, const AttentionTile& tile,
                                                 int head, int dim) {
    return {static_cast<T*>(matrix.data) + tile.first * matrix.ld + head * dim, matrix.ld,
            tile.length};
}

/// Tiles in shared memory have an odd row stride; zeros beyond the sample. Their elements E are
/// float, or the rows' own type where floats do not fit: the numbers are the same.
__host__ __device__ __forceinline__ int tile_ld(int dim) {
    return dim | 1;
}

template <class T, class E>
__device__ void load_tile(E* tile, const HeadRows<T>& source, int begin, int dim) {
    for (int i = static_cast<int>(threadIdx.x); i < tile_rows * dim; i += threads) {
        const int row = i / dim;
        const int column = i % dim;
        tile[row * tile_ld(dim) + column] = from_float<E>(
            begin + row < source.length ? to_float(source.data[(begin + row) * source.ld + column])
                                        : 0.0F);
    }
}

struct Position {
    int row = static_cast<int>(threadIdx.x) / lanes;
    int lane = static_cast<int>(threadIdx.x) % lanes;
};

/// result[i] = dot of row `row` of x with row lane + lanes * i of y. Summed in pieces of 16: the
/// rounding of large scores is what limits the precision of everything that follows.
template <class E>
__device__ __forceinline__ void dot_rows(float (&result)[keys_per_thread], const E* x, const E* y,
                                         int dim, const Position& at) {
    constexpr int piece = 16;
#pragma unroll
    for (int i = 0; i < keys_per_thread; ++i) result[i] = 0.0F;
    const E* x_row = x + at.row * tile_ld(dim);
    const E* y_row = y + at.lane * tile_ld(dim);
    for (int begin = 0; begin < dim; begin += piece) {
        float sums[keys_per_thread] = {};
        const int end = min(begin + piece, dim);
#pragma unroll 4
        for (int j = begin; j < end; ++j) {
            const float value = to_float(x_row[j]);
#pragma unroll
            for (int i = 0; i < keys_per_thread; ++i) {
                sums[i] = fmaf(value, to_float(y_row[i * lanes * tile_ld(dim) + j]), sums[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < keys_per_thread; ++i) result[i] += sums[i];
    }
}

/// acc[j] += sum over i of weights[i * stride] * tile[i, lane + lanes * j].
template <int columns, class E>
__device__ __forceinline__ void add_rows(float (&acc)[columns], const float* weights, int stride,
                                         const E* tile, int dim, const Position& at) {
    float sums[columns] = {};
    for (int i = 0; i < tile_rows; ++i) {
        const float weight = weights[i * stride];
        const E* row = tile + i * tile_ld(dim);
#pragma unroll
        for (int j = 0; j < columns; ++j) {
            const int column = at.lane + lanes * j;
            if (column < dim) sums[j] = fmaf(weight, to_float(row[column]), sums[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < columns; ++j) acc[j] += sums[j];
}

template <class T, int columns>
__device__ void write_row(const HeadRows<T>& target, int row, const float (&acc)[columns],
                          float factor, int dim, const Position& at) {
    if (row >= target.length) return;
#pragma unroll
    for (int j = 0; j < columns; ++j) {
        const int column = at.lane + lanes * j;
        if (column < dim) {
            target.data[row * target.ld + column] = from_float<T>(acc[j] * factor);
        };
    }
}

template <class Reduce>
__device__ __forceinline__ float over_lanes(float value, const Reduce& reduce) {
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) {
        value = reduce(value, __shfl_xor_sync(0xffffffffU, value, step));
    }
    return value;
}

__device__ __forceinline__ float capped(float score, float cap) {
    return cap * tanhf(score / cap);
}

template <class T, class E, int columns>
__global__ void __launch_bounds__(threads)
    forward_kernel(const __grid_constant__ AttentionParams p) {
    extern __shared__ float plain_shared[];
    const int dim = p.head_dim;
    E* q_tile = reinterpret_cast<E*>(plain_shared);
    E* k_tile = q_tile + tile_rows * tile_ld(dim);
    E* v_tile = k_tile + tile_rows * tile_ld(dim);
    float* weights = reinterpret_cast<float*>(v_tile + tile_rows * tile_ld(dim));
    const Position at;
    const AttentionTile tile = p.tiles[blockIdx.x / p.heads];
    const int head = static_cast<int>(blockIdx.x) % p.heads;
    const int kv_head = head / (p.heads / p.kv_heads);
    const int query = tile.begin + at.row;
    const auto sum_of = [](float x, float y) { return x + y; };

    load_tile(q_tile, head_rows<T>(p.q, tile, head, dim), tile.begin, dim);
    float acc[columns] = {};
    float largest = -INFINITY;
    float sum = 0.0F;
    for (int key = first_key_tile(tile.begin, p.sliding_window, tile_rows); key <= tile.begin;
         key += tile_rows) {
        __syncthreads();
        load_tile(k_tile, head_rows<T>(p.k, tile, kv_head, dim), key, dim);
        load_tile(v_tile, head_rows<T>(p.v, tile, kv_head, dim), key, dim);
        __syncthreads();
        float scores[keys_per_thread];
        dot_rows(scores, q_tile, k_tile, dim, at);
        float now = largest;
#pragma unroll
        for (int i = 0; i < keys_per_thread; ++i) {
            const bool hidden = is_hidden(query - (key + at.lane + lanes * i), p.sliding_window);
            scores[i] = hidden ? -INFINITY : scores[i] * p.scale;
            if (p.soft_cap != 0.0F && !hidden) scores[i] = capped(scores[i], p.soft_cap);
            now = fmaxf(now, scores[i]);
        }
        now = over_lanes(now, [](float x, float y) { return fmaxf(x, y); });
        const float shift = now == -INFINITY ? 0.0F : now;  // -inf: nothing has been seen yet
        const float correction = expf(largest - shift);
        largest = now;
        sum *= correction;
#pragma unroll
        for (int i = 0; i < keys_per_thread; ++i) {
            const float weight = expf(scores[i] - shift);
            sum += weight;
            weights[at.row * score_ld + at.lane + lanes * i] = weight;
        }
#pragma unroll
        for (int j = 0; j < columns; ++j) acc[j] *= correction;
        __syncwarp();
        add_rows(acc, weights + at.row * score_ld, 1, v_tile, dim, at);
    }
    sum = over_lanes(sum, sum_of);
    const float correction = p.sinks == nullptr ? 1.0F : add_sink(p.sinks[head], largest, sum);
    write_row(head_rows<T>(p.o, tile, head, dim), query, acc, correction / sum, dim, at);
    if (at.lane == 0 && query < tile.length) {
        p.lse[static_cast<std::int64_t>(tile.first + query) * p.heads + head] = largest + logf(sum);
    }
}

/// row_stats = (lse, rowsum(dO * O)); a warp per row and head.
template <class T>
__global__ void row_stats_kernel(const __grid_constant__ AttentionBackwardParams p) {
    const AttentionParams& forward = p.forward;
    const std::int64_t item =
        (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    if (item >= forward.q.rows * forward.heads) return;
    const std::int64_t row = item / forward.heads;
    const int head = static_cast<int>(item % forward.heads);
    const T* o =
        static_cast<const T*>(forward.o.data) + row * forward.o.ld + head * forward.head_dim;
    const T* d_o = static_cast<const T*>(p.d_o.data) + row * p.d_o.ld + head * forward.head_dim;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float sum = 0.0F;
    for (int j = lane; j < forward.head_dim; j += 32) sum += to_float(o[j]) * to_float(d_o[j]);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step);
    if (lane == 0) {
        p.row_stats[head * forward.q.rows + row] = {forward.lse[item], sum};
    }
}

/// P and dS = P (dP - delta), of scores before a cap, of 32 queries by 32 keys into shared memory.
template <class E>
__device__ void gradients_of_scores(float* probabilities, float* d_scores, const E* q_tile,
                                    const E* k_tile, const E* v_tile, const E* d_o_tile,
                                    float2 stats, int ahead, const AttentionParams& p,
                                    const Position& at) {
    const int dim = p.head_dim;
    float scores[keys_per_thread];
    float d_p[keys_per_thread];
    dot_rows(scores, q_tile, k_tile, dim, at);
    dot_rows(d_p, d_o_tile, v_tile, dim, at);
#pragma unroll
    for (int i = 0; i < keys_per_thread; ++i) {
        const int key = at.lane + lanes * i;
        const bool hidden = is_hidden(at.row + ahead - key, p.sliding_window);
        float weight = hidden ? 0.0F : expf(fmaf(scores[i], p.scale, -stats.x));
        float slope = 1.0F;
        if (p.soft_cap != 0.0F) {
            const float score = capped(scores[i] * p.scale, p.soft_cap);
            weight = hidden ? 0.0F : expf(score - stats.x);
            slope = 1.0F - (score / p.soft_cap) * (score / p.soft_cap);
        }
        probabilities[at.row * score_ld + key] = weight;
        d_scores[at.row * score_ld + key] = weight * (d_p[i] - stats.y) * slope;
    }
}

template <class E>
struct BackwardTiles {
    E* q;
    E* d_o;
    E* k;
    E* v;
    float* probabilities;
    float* d_scores;

    __device__ BackwardTiles(float* shared, int dim)
        : q(reinterpret_cast<E*>(shared)),
          d_o(q + tile_rows * tile_ld(dim)),
          k(d_o + tile_rows * tile_ld(dim)),
          v(k + tile_rows * tile_ld(dim)),
          probabilities(reinterpret_cast<float*>(v + tile_rows * tile_ld(dim))),
          d_scores(probabilities + tile_rows * score_ld) {}
};

__device__ __forceinline__ float2 stats_of(const AttentionBackwardParams& p,
                                           const AttentionTile& tile, int head, int query) {
    return query < tile.length ? p.row_stats[head * p.forward.q.rows + tile.first + query]
                               : float2{INFINITY, 0.0F};
}

template <class T, class E, int columns>
__global__ void __launch_bounds__(threads)
    key_value_kernel(const __grid_constant__ AttentionBackwardParams p) {
    extern __shared__ float plain_shared[];
    const AttentionParams& forward = p.forward;
    const int dim = forward.head_dim;
    const BackwardTiles<E> tiles(plain_shared, dim);
    const Position at;
    const AttentionTile tile = p.key_tiles[blockIdx.x / forward.kv_heads];
    const int kv_head = static_cast<int>(blockIdx.x) % forward.kv_heads;
    const int group = forward.heads / forward.kv_heads;

    load_tile(tiles.k, head_rows<T>(forward.k, tile, kv_head, dim), tile.begin, dim);
    load_tile(tiles.v, head_rows<T>(forward.v, tile, kv_head, dim), tile.begin, dim);
    const int end = query_end(tile, tile_rows, forward.sliding_window);
    float dk[columns] = {};
    float dv[columns] = {};
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int begin = tile.begin; begin < end; begin += tile_rows) {
            __syncthreads();
            load_tile(tiles.q, head_rows<T>(forward.q, tile, head, dim), begin, dim);
            load_tile(tiles.d_o, head_rows<T>(p.d_o, tile, head, dim), begin, dim);
            __syncthreads();
            gradients_of_scores(tiles.probabilities, tiles.d_scores, tiles.q, tiles.k, tiles.v,
                                tiles.d_o, stats_of(p, tile, head, begin + at.row),
                                begin - tile.begin, forward, at);
            __syncthreads();
            add_rows(dv, tiles.probabilities + at.row, score_ld, tiles.d_o, dim, at);
            add_rows(dk, tiles.d_scores + at.row, score_ld, tiles.q, dim, at);
        }
    }
    write_row(head_rows<T>(p.dk, tile, kv_head, dim), tile.begin + at.row, dk, forward.scale, dim,
              at);
    write_row(head_rows<T>(p.dv, tile, kv_head, dim), tile.begin + at.row, dv, 1.0F, dim, at);
}

template <class T, class E, int columns>
__global__ void __launch_bounds__(threads)
    query_kernel(const __grid_constant__ AttentionBackwardParams p) {
    extern __shared__ float plain_shared[];
    const AttentionParams& forward = p.forward;
    const int dim = forward.head_dim;
    const BackwardTiles<E> tiles(plain_shared, dim);
    const Position at;
    const AttentionTile tile = p.query_tiles[blockIdx.x / forward.heads];
    const int head = static_cast<int>(blockIdx.x) % forward.heads;
    const int kv_head = head / (forward.heads / forward.kv_heads);
    const float2 stats = stats_of(p, tile, head, tile.begin + at.row);

    load_tile(tiles.q, head_rows<T>(forward.q, tile, head, dim), tile.begin, dim);
    load_tile(tiles.d_o, head_rows<T>(p.d_o, tile, head, dim), tile.begin, dim);
    float dq[columns] = {};
    for (int key = first_key_tile(tile.begin, forward.sliding_window, tile_rows); key <= tile.begin;
         key += tile_rows) {
        __syncthreads();
        load_tile(tiles.k, head_rows<T>(forward.k, tile, kv_head, dim), key, dim);
        load_tile(tiles.v, head_rows<T>(forward.v, tile, kv_head, dim), key, dim);
        __syncthreads();
        gradients_of_scores(tiles.probabilities, tiles.d_scores, tiles.q, tiles.k, tiles.v,
                            tiles.d_o, stats, tile.begin - key, forward, at);
        __syncwarp();
        add_rows(dq, tiles.d_scores + at.row * score_ld, 1, tiles.k, dim, at);
    }
    write_row(head_rows<T>(p.dq, tile, head, dim), tile.begin + at.row, dq, forward.scale, dim, at);
}

template <class E>
std::size_t tile_bytes(int tiles, int score_tiles, int dim) {
    return tile_rows * (sizeof(E) * static_cast<std::size_t>(tiles * tile_ld(dim)) +
                        sizeof(float) * static_cast<std::size_t>(score_tiles * score_ld));
}

template <class E>
std::size_t forward_bytes(int dim) {
    return tile_bytes<E>(3, 1, dim);
}
template <class E>
std::size_t backward_bytes(int dim) {
    return tile_bytes<E>(4, 2, dim);
}

template <class Params>
cudaError_t launch_kernel(cudaStream_t stream, void (*kernel)(Params), const Params& params,
                          std::int64_t blocks, std::size_t shared) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return error;
    kernel<<<static_cast<unsigned>(blocks), threads, shared, stream>>>(params);
    return cudaGetLastError();
}

template <class T, class E, int columns>
cudaError_t launch_forward(cudaStream_t stream, const AttentionParams& params) {
    return launch_kernel(stream, forward_kernel<T, E, columns>, params,
                         static_cast<std::int64_t>(params.tile_count) * params.heads,
                         forward_bytes<E>(params.head_dim));
}

template <class T, class E, int columns>
cudaError_t launch_backward(cudaStream_t stream, const AttentionBackwardParams& params) {
    const AttentionParams& forward = params.forward;
    const std::size_t shared = backward_bytes<E>(forward.head_dim);
    constexpr int rows_per_block = threads / 32;
    const std::int64_t rows = forward.q.rows * forward.heads;
    cudaError_t error = launch_kernel(stream, row_stats_kernel<T>, params,
                                      (rows + rows_per_block - 1) / rows_per_block, 0);
    if (error != cudaSuccess) return error;
    error =
        launch_kernel(stream, key_value_kernel<T, E, columns>, params,
                      static_cast<std::int64_t>(params.key_tile_count) * forward.kv_heads, shared);
    if (error != cudaSuccess) return error;
    return launch_kernel(stream, query_kernel<T, E, columns>, params,
                         static_cast<std::int64_t>(params.query_tile_count) * forward.heads,
                         shared);
}

bool exceeds(std::size_t bytes, int limit) {
    return bytes > static_cast<std::size_t>(limit);
}

}  // namespace

std::int32_t attention_most_head_dim(Element type, int shared_limit) {
    std::int32_t dim = attention_max_head_dim;
    while (type == Element::f32 && exceeds(backward_bytes<float>(dim), shared_limit)) --dim;
    return dim;
}

cudaError_t attention_forward_plain(cudaStream_t stream, const AttentionParams& params) {
    const bool bf16 = params.q.type == Element::bf16;
    if (params.head_dim <= 64) {
        return bf16 ? launch_forward<Bf16, float, 8>(stream, params)
                    : launch_forward<float, float, 8>(stream, params);
    }
    if (!bf16) return launch_forward<float, float, 32>(stream, params);
    return exceeds(forward_bytes<float>(params.head_dim), params.shared_limit)
               ? launch_forward<Bf16, Bf16, 32>(stream, params)
               : launch_forward<Bf16, float, 32>(stream, params);
}

cudaError_t attention_backward_plain(cudaStream_t stream, const AttentionBackwardParams& params) {
    const AttentionParams& forward = params.forward;
    const bool bf16 = forward.q.type == Element::bf16;
    if (forward.head_dim <= 64) {
        return bf16 ? launch_backward<Bf16, float, 8>(stream, params)
                    : launch_backward<float, float, 8>(stream, params);
    }
    if (!bf16) return launch_backward<float, float, 32>(stream, params);
    return exceeds(backward_bytes<float>(forward.head_dim), forward.shared_limit)
               ? launch_backward<Bf16, Bf16, 32>(stream, params)
               : launch_backward<Bf16, float, 32>(stream, params);
}

}  // namespace loratrain::kernels
