#include "cached_delta.h"
#include "kernels/device_math.cuh"
#include "kernels/launch.cuh"

/// The delta rule row by row from a kept state to the state behind the last row. Columns of a state
/// do not depend on each other: a group of `parts` lanes has `span` of them in registers, each lane
/// 4 rows of every 32. q^, k^ and v of `batch` rows go through shared memory, so that a block has
/// two barriers for all of them.

namespace loratrain::kernels {

namespace {

constexpr int warps = 4;
constexpr int threads = 32 * warps;
constexpr int parts = 8;
constexpr int span = 2;
constexpr int warp_columns = 32 / parts * span;
constexpr int block_columns = warps * warp_columns;
constexpr int batch = 16;

/// A lane's columns of a row of the state, which it loads at once.
struct alignas(span * sizeof(float)) Together {
    float x[span];
};

/// What a block goes through.
struct CachedWalk {
    std::int64_t first;
    std::int64_t rows;
    std::int32_t position;  ///< of the first row
    int head;
    int key_head;
    int first_column;  ///< of the block in the head
    int key_dim;
    int value_dim;

    __device__ explicit CachedWalk(const DeltaRuleParams& p) {
        first = p.rows.offsets[blockIdx.y];
        rows = p.rows.offsets[blockIdx.y + 1] - first;
        position = rows > 0 ? p.rows.positions[first] : 0;
        key_dim = static_cast<int>(p.q.cols) / p.key_heads;
        value_dim = static_cast<int>(p.v.cols) / p.value_heads;
        const int blocks = (value_dim + block_columns - 1) / block_columns;
        head = static_cast<int>(blockIdx.x) / blocks;
        key_head = head / (p.value_heads / p.key_heads);
        first_column = static_cast<int>(blockIdx.x) % blocks * block_columns;
    }
};

/// Rows of q^, k^ and v in shared memory; columns that a head does not have are 0.
template <int key_columns>
struct Batch {
    float q[batch][key_columns];
    float k[batch][key_columns];
    float v[batch][block_columns];
    float decay[batch];
    float beta[batch];
};

/// Columns of a head's row with its length made `length`, by a warp.
template <class T, int key_columns>
__device__ __forceinline__ void load_key(const T* x, int dim, float length,
                                         float (&to)[key_columns]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float own[key_columns / 32];
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < key_columns / 32; ++i) {
        const int d = lane + 32 * i;
        own[i] = d < dim ? to_float(x[d]) : 0.0F;
        squares += own[i] * own[i];
    }
    const float factor = length / sqrtf(warp_sum(squares) + delta_length_eps);
#pragma unroll
    for (int i = 0; i < key_columns / 32; ++i) to[lane + 32 * i] = factor * own[i];
}

/// Rows [begin, begin + count) of the sample.
template <class T, int key_columns>
__device__ __forceinline__ void load_batch(const DeltaRuleParams& p, const CachedWalk& walk,
                                           std::int64_t begin, int count, Batch<key_columns>& to) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const float scale = 1.0F / sqrtf(static_cast<float>(walk.key_dim));
    for (int i = warp; i < count; i += warps) {
        const std::int64_t row = walk.first + begin + i;
        const std::int64_t column = std::int64_t{walk.key_head} * walk.key_dim;
        load_key(static_cast<const T*>(p.q.data) + row * p.q.ld + column, walk.key_dim, scale,
                 to.q[i]);
        load_key(static_cast<const T*>(p.k.data) + row * p.k.ld + column, walk.key_dim, 1.0F,
                 to.k[i]);
    }
    for (int at = static_cast<int>(threadIdx.x); at < count * block_columns; at += threads) {
        const int i = at / block_columns;
        const int column = walk.first_column + at % block_columns;
        const T* v = static_cast<const T*>(p.v.data) + (walk.first + begin + i) * p.v.ld +
                     std::int64_t{walk.head} * walk.value_dim;
        to.v[i][at % block_columns] = column < walk.value_dim ? to_float(v[column]) : 0.0F;
    }
    if (threadIdx.x < static_cast<unsigned>(count)) {
        const std::int64_t at = (walk.first + begin + threadIdx.x) * p.value_heads + walk.head;
        to.decay[threadIdx.x] = expf(p.g[at]);
        to.beta[threadIdx.x] = p.beta[at];
    }
}

/// The columns of a state that a group of lanes has.
template <int key_columns>
struct Columns {
    static constexpr int own = key_columns / parts;  ///< rows of the state that a lane has

    Together s[own];
    int part;    ///< of the group, which the lane is
    int column;  ///< the first, of the block

    __device__ Columns() {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        part = lane % parts;
        column = static_cast<int>(threadIdx.x) / 32 * warp_columns + lane / parts * span;
    }
    /// Row of the state of the lane's r-th.
    __device__ int row(int r) const { return r / 4 * (parts * 4) + part * 4 + r % 4; }

    __device__ void clear() {
#pragma unroll
        for (int r = 0; r < own; ++r) {
#pragma unroll
            for (int j = 0; j < span; ++j) s[r].x[j] = 0.0F;
        }
    }
    /// Calls move(element of the state, register); where heads allow it, of all the lane's columns
    /// at once.
    template <class Move>
    __device__ void for_each(const CachedWalk& walk, float* state, const Move& move) {
        const bool is_wide = walk.value_dim % span == 0;
        const int left = walk.value_dim - walk.first_column - column;
#pragma unroll
        for (int r = 0; r < own; ++r) {
            if (row(r) >= walk.key_dim) continue;
            float* at = state + std::int64_t{row(r)} * walk.value_dim + walk.first_column + column;
            if (is_wide) {
                if (left > 0) move(*reinterpret_cast<Together*>(at), s[r]);
                continue;
            }
#pragma unroll
            for (int j = 0; j < span; ++j) {
                if (j < left) move(at[j], s[r].x[j]);
            }
        }
    }
    __device__ void load(const CachedWalk& walk, float* state) {
        clear();
        for_each(walk, state, [](const auto& from, auto& to) { to = from; });
    }
    __device__ void store(const CachedWalk& walk, float* state) {
        for_each(walk, state, [](auto& to, const auto& from) { to = from; });
    }

    /// Sums over the state's rows: x . columns; every lane of the group gets them.
    __device__ void multiply(const float* x, float (&y)[span]) const {
#pragma unroll
        for (int j = 0; j < span; ++j) y[j] = 0.0F;
#pragma unroll
        for (int r = 0; r < own; r += 4) {
            const float4 of = *reinterpret_cast<const float4*>(x + row(r));
            const float factors[4] = {of.x, of.y, of.z, of.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < span; ++j) y[j] += factors[i] * s[r + i].x[j];
            }
        }
#pragma unroll
        for (int offset = parts / 2; offset > 0; offset /= 2) {
#pragma unroll
            for (int j = 0; j < span; ++j) y[j] += __shfl_xor_sync(0xffffffffU, y[j], offset);
        }
    }
    /// columns -> decay columns + k uᵀ.
    __device__ void update(float decay, const float* k, const float (&u)[span]) {
#pragma unroll
        for (int r = 0; r < own; r += 4) {
            const float4 of = *reinterpret_cast<const float4*>(k + row(r));
            const float factors[4] = {of.x, of.y, of.z, of.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < span; ++j)
                    s[r + i].x[j] = decay * s[r + i].x[j] + factors[i] * u[j];
            }
        }
    }
};

/// Block: block_columns columns of a value head of a sample.
template <class T, int key_columns>
__global__ void __launch_bounds__(threads)
    cached_rule_kernel(const __grid_constant__ DeltaRuleParams p, float* kept) {
    __shared__ __align__(16) Batch<key_columns> rows;
    wait_for_kernel_before();
    const CachedWalk walk(p);
    if (walk.rows == 0) return;
    float* state = kept + (std::int64_t{blockIdx.y} * p.value_heads + walk.head) * walk.key_dim *
                              walk.value_dim;
    Columns<key_columns> columns;
    if (walk.position == 0) {
        columns.clear();
    } else {
        columns.load(walk, state);
    }
    for (std::int64_t begin = 0; begin < walk.rows; begin += batch) {
        const int count = static_cast<int>(min(std::int64_t{batch}, walk.rows - begin));
        __syncthreads();
        load_batch<T>(p, walk, begin, count, rows);
        __syncthreads();
        for (int i = 0; i < count; ++i) {
            float u[span];
            columns.multiply(rows.k[i], u);
#pragma unroll
            for (int j = 0; j < span; ++j) {
                u[j] = rows.beta[i] * (rows.v[i][columns.column + j] - rows.decay[i] * u[j]);
            }
            columns.update(rows.decay[i], rows.k[i], u);
            float o[span];
            columns.multiply(rows.q[i], o);
            if (columns.part != 0) continue;
            T* to = static_cast<T*>(p.o.data) + (walk.first + begin + i) * p.o.ld +
                    std::int64_t{walk.head} * walk.value_dim + walk.first_column + columns.column;
#pragma unroll
            for (int j = 0; j < span; ++j) {
                if (walk.first_column + columns.column + j < walk.value_dim) {
                    to[j] = from_float<T>(o[j]);
                }
            }
        }
    }
    columns.store(walk, state);
}

template <int key_columns>
cudaError_t launch(cudaStream_t stream, const DeltaRuleParams& p, float* kept) {
    const dim3 grid(
        static_cast<unsigned>(pieces(p.sizes().value_dim, block_columns) * p.value_heads),
        static_cast<unsigned>(p.rows.samples));
    return with_type(p.q.type, [&](auto type) {
        return launch_early(stream, cached_rule_kernel<decltype(type), key_columns>, grid, threads,
                            0, p, kept);
    });
}

}  // namespace

cudaError_t cached_delta_rule(cudaStream_t stream, const DeltaRuleParams& p, float* kept) {
    if (p.rows.samples == 0 || p.q.rows == 0) return cudaSuccess;
    const std::int64_t dim = p.sizes().key_dim;
    if (dim > delta_most_dim) return cudaErrorInvalidValue;
    if (dim <= 32) return launch<32>(stream, p, kept);
    return dim <= 128 ? launch<128>(stream, p, kept) : launch<delta_most_dim>(stream, p, kept);
}

}  // namespace loratrain::kernels
