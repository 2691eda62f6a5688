#include "attention.h"

#include <cmath>
#include <type_traits>

#include "device_math.cuh"
#include "launch.cuh"
#include "stored_columns.cuh"

namespace loratrain::kernels {

namespace {

constexpr int warp_lanes = 32;
constexpr int warps = 4;
constexpr unsigned all_lanes = 0xffffffffU;
/// Keys that a lane loads before it uses the first of them.
constexpr int keys_ahead = 4;

/// How threads share a head's columns and the keys: `lanes` lanes have a whole head, each `pieces`
/// pieces of N columns. A warp takes 32 / lanes keys at a time.
template <class T, int N, int of_head>
struct Shape {
    static constexpr int lanes = of_head;
    static constexpr int pieces = N == 1 ? attention_max_head_dim / warp_lanes : 1;
    static constexpr int columns = pieces * N;  ///< of a lane
    static constexpr int most_dim = lanes * columns;
    static constexpr int parts = warps * warp_lanes / lanes;  ///< that share the keys
};

template <class S, int N>
__device__ __forceinline__ int column_of(int piece) {
    return (piece * S::lanes + static_cast<int>(threadIdx.x) % S::lanes) * N;
}

/// A head's columns of a lane as they lie in memory; 0 where nothing is taken.
template <class T, int N, class S>
struct HeadPart {
    StoredColumns<T, N> held[S::pieces] = {};

    __device__ __forceinline__ void take(const T* head, int dim) {
#pragma unroll
        for (int i = 0; i < S::pieces; ++i) {
            const int column = column_of<S, N>(i);
            if (column < dim) held[i].take(head + column);
        }
    }
    __device__ __forceinline__ void values(float (&v)[S::columns]) const {
#pragma unroll
        for (int i = 0; i < S::pieces; ++i) {
            float part[N];
            held[i].values(part);
#pragma unroll
            for (int j = 0; j < N; ++j) v[i * N + j] = part[j];
        }
    }
};

/// What the lanes of a head have seen of their keys.
template <int columns>
struct RunningSum {
    float acc[columns] = {};
    float largest = -INFINITY;
    float sum = 0.0F;
};

/// Scores of keys become weights with respect to the largest score so far; those of keys that are
/// not there are -inf.
template <int columns>
__device__ __forceinline__ void add_weights(RunningSum<columns>& own, float (&scores)[keys_ahead]) {
    float largest = own.largest;
#pragma unroll
    for (const float score : scores) largest = fmaxf(largest, score);
    const float shift = largest == -INFINITY ? 0.0F : largest;
    const float correction = expf(own.largest - shift);
#pragma unroll
    for (int j = 0; j < columns; ++j) own.acc[j] *= correction;
    own.sum *= correction;
    own.largest = largest;
#pragma unroll
    for (float& score : scores) {
        score = expf(score - shift);
        own.sum += score;
    }
}

template <class T>
__device__ __forceinline__ T* head_of(const Matrix& x, std::int64_t row, int head, int dim) {
    return static_cast<T*>(x.data) + row * x.ld + static_cast<std::int64_t>(head) * dim;
}

/// A block for each row and `heads` neighbouring query heads of one key-value head; its parts take
/// turns at the keys.
template <class T, int N, int lanes, int heads>
__global__ void __launch_bounds__(warp_lanes* warps)
    cached_attention_kernel(const __grid_constant__ CachedAttentionParams p, int groups) {
    using S = Shape<T, N, lanes>;
    constexpr int columns = S::columns;
    __shared__ float acc_of[S::parts][heads][S::most_dim];
    __shared__ float largest_of[S::parts][heads];
    __shared__ float sum_of[S::parts][heads];
    const int dim = p.of.head_dim;
    const int group = p.of.heads / p.of.kv_heads;
    const std::int64_t row = blockIdx.x;
    const int kv_head = static_cast<int>(blockIdx.y) / groups;
    const int first_of_group = static_cast<int>(blockIdx.y) % groups * heads;
    const int own_heads = min(heads, group - first_of_group);
    const int first_head = kv_head * group + first_of_group;
    const int part = static_cast<int>(threadIdx.x) / lanes;
    const int last = p.positions[row];
    const std::int64_t first = p.first[row];
    const T* new_key = head_of<T>(p.of.k, row, kv_head, dim);
    const T* new_value = head_of<T>(p.of.v, row, kv_head, dim);

    float q[heads][columns];
    RunningSum<columns> own[heads];
#pragma unroll
    for (int h = 0; h < heads; ++h) {
        HeadPart<T, N, S> stored;
        stored.take(head_of<T>(p.of.q, row, first_head + min(h, own_heads - 1), dim), dim);
        stored.values(q[h]);
    }
    const int begin = max(0, last - p.of.sliding_window + 1);
    for (int turn = begin; turn <= last; turn += keys_ahead * S::parts) {
        HeadPart<T, N, S> keys[keys_ahead];
        HeadPart<T, N, S> values[keys_ahead];
#pragma unroll
        for (int i = 0; i < keys_ahead; ++i) {
            const int key = turn + i * S::parts + part;
            if (key > last) continue;
            // The newest is not read from the cache: another block writes it there.
            const bool is_new = key == last;
            keys[i].take(is_new ? new_key : head_of<T>(p.keys, first + key, kv_head, dim), dim);
            values[i].take(is_new ? new_value : head_of<T>(p.values, first + key, kv_head, dim),
                           dim);
        }
        float scores[heads][keys_ahead];
#pragma unroll
        for (int i = 0; i < keys_ahead; ++i) {
            float of_key[columns];
            keys[i].values(of_key);
#pragma unroll
            for (int h = 0; h < heads; ++h) {
                scores[h][i] = 0.0F;
#pragma unroll
                for (int j = 0; j < columns; ++j) {
                    scores[h][i] = fmaf(q[h][j], of_key[j], scores[h][i]);
                }
            }
        }
#pragma unroll
        for (int offset = lanes / 2; offset > 0; offset /= 2) {
#pragma unroll
            for (int at = 0; at < heads * keys_ahead; ++at) {
                float& score = scores[at / keys_ahead][at % keys_ahead];
                score += __shfl_xor_sync(all_lanes, score, offset);
            }
        }
#pragma unroll
        for (int at = 0; at < heads * keys_ahead; ++at) {
            float& score = scores[at / keys_ahead][at % keys_ahead];
            score *= p.of.scale;
            if (p.of.soft_cap != 0.0F) score = p.of.soft_cap * tanhf(score / p.of.soft_cap);
            if (turn + at % keys_ahead * S::parts + part > last) score = -INFINITY;
        }
#pragma unroll
        for (int h = 0; h < heads; ++h) add_weights(own[h], scores[h]);
#pragma unroll
        for (int i = 0; i < keys_ahead; ++i) {
            float of_value[columns];
            values[i].values(of_value);
#pragma unroll
            for (int h = 0; h < heads; ++h) {
#pragma unroll
                for (int j = 0; j < columns; ++j) {
                    own[h].acc[j] = fmaf(scores[h][i], of_value[j], own[h].acc[j]);
                }
            }
        }
    }
#pragma unroll
    for (int h = 0; h < heads; ++h) {
#pragma unroll
        for (int j = 0; j < columns; ++j) {
            acc_of[part][h][column_of<S, N>(j / N) + j % N] = own[h].acc[j];
        }
        largest_of[part][h] = own[h].largest;
        sum_of[part][h] = own[h].sum;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < own_heads * dim; i += warp_lanes * warps) {
        const int h = i / dim;
        const float sink = p.of.sinks == nullptr ? -INFINITY : p.of.sinks[first_head + h];
        float largest = sink;
        for (int w = 0; w < S::parts; ++w) largest = fmaxf(largest, largest_of[w][h]);
        float sum = expf(sink - largest);
        float value = 0.0F;
        for (int w = 0; w < S::parts; ++w) {
            const float factor = expf(largest_of[w][h] - largest);
            sum += sum_of[w][h] * factor;
            value += acc_of[w][h][i % dim] * factor;
        }
        head_of<T>(p.of.o, row, first_head, dim)[i] = from_float<T>(value / sum);
    }
    if (first_of_group != 0) return;
    for (int column = static_cast<int>(threadIdx.x); column < dim; column += warp_lanes * warps) {
        head_of<T>(p.keys, first + last, kv_head, dim)[column] = new_key[column];
        head_of<T>(p.values, first + last, kv_head, dim)[column] = new_value[column];
    }
}

template <class T, int N, int lanes, int heads>
cudaError_t launch(cudaStream_t stream, const CachedAttentionParams& params) {
    const int group = params.of.heads / params.of.kv_heads;
    const int groups = (group + heads - 1) / heads;
    const dim3 grid(static_cast<unsigned>(params.of.q.rows),
                    static_cast<unsigned>(params.of.kv_heads * groups));
    cached_attention_kernel<T, N, lanes, heads>
        <<<grid, warp_lanes * warps, 0, stream>>>(params, groups);
    return cudaGetLastError();
}

template <class T, int lanes>
cudaError_t launch_wide(cudaStream_t stream, const CachedAttentionParams& params) {
    return params.of.heads == params.of.kv_heads ? launch<T, wide, lanes, 1>(stream, params)
                                                 : launch<T, wide, lanes, 4>(stream, params);
}

}  // namespace

cudaError_t cached_attention(cudaStream_t stream, const CachedAttentionParams& params) {
    const AttentionParams& of = params.of;
    if (of.q.rows == 0) return cudaSuccess;
    const bool is_wide =
        of.head_dim % wide == 0 && all_wide({&of.q, &of.k, &of.v, &params.keys, &params.values});
    return with_type(of.q.type, [&](auto type) {
        using T = decltype(type);
        if (!is_wide) return launch<T, 1, warp_lanes, 1>(stream, params);
        if (of.head_dim <= 8 * wide) return launch_wide<T, 8>(stream, params);
        if (of.head_dim <= 16 * wide) return launch_wide<T, 16>(stream, params);
        return launch_wide<T, 32>(stream, params);
    });
}

}  // namespace loratrain::kernels
