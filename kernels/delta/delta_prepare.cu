#include "delta_chunk.cuh"
#include "delta_launch.h"

/// What the chunks of the delta rule need before the states are known: with k^ of length one and G
/// the sums of g, A = strictly lower part of (beta_i e^(G_i - G_j) k^_i . k^_j), T = (I + A)^-1,
/// W = T (beta e^G k^), U = T (beta v).

namespace loratrain::kernels::delta {

namespace {

constexpr int threads = 128;
/// Floats of a row of A: a fragment's 8-byte reads meet no bank twice.
constexpr int pitch = chunk_rows + 8;
constexpr int square_bytes = chunk_rows * pitch * 4;
constexpr int scalar_bytes = 4 * chunk_rows * 4;
constexpr int prepare_shared = 2 * dim_tile_bytes + square_bytes + scalar_bytes;

/// A warp per row and key head.
__global__ void __launch_bounds__(block_threads)
    length_kernel(const __grid_constant__ DeltaRuleParams p, Workspace work) {
    wait_for_kernel_before();
    let_next_kernel_start();
    const std::int64_t at = (std::int64_t{blockIdx.x} * block_threads + threadIdx.x) / 32;
    if (at >= p.rows.tokens * p.key_heads) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t row = at / p.key_heads;
    const int head = static_cast<int>(at % p.key_heads);
    const auto squares = [&](const Matrix& x) {
        const uint2 part = *reinterpret_cast<const uint2*>(head_of(x, row, head) + lane * 4);
        const float v[4] = {low_half(part.x), high_half(part.x), low_half(part.y),
                            high_half(part.y)};
        return warp_sum(v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + v[3] * v[3]);
    };
    const float of_q = squares(p.q);
    const float of_k = squares(p.k);
    if (lane != 0) return;
    work.query_factors[at] = 1.0F / sqrtf((of_q + delta_length_eps) * static_cast<float>(dim));
    work.key_factors[at] = 1.0F / sqrtf(of_k + delta_length_eps);
}

struct Scalars {
    float* sums;    ///< G; of rows beyond the chunk: of its last row
    float* beta;    ///< 0 beyond the chunk
    float* length;  ///< 1 / |k|; 0 beyond the chunk
    float* of_w;    ///< beta e^G / |k|
};

/// By the first warp.
__device__ __forceinline__ void load_scalars(const DeltaRuleParams& p, const Workspace& work,
                                             const Chunk& chunk, int head, const Scalars& to,
                                             int lane) {
    const int key_head = head / (p.value_heads / p.key_heads);
    float before = 0.0F;
#pragma unroll
    for (int part = 0; part < chunk_rows; part += 32) {
        const int row = part + lane;
        const bool inside = row < chunk.rows;
        const std::int64_t at = (chunk.first + row) * p.value_heads + head;
        float sum = inside ? p.g[at] : 0.0F;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const float other = __shfl_up_sync(0xffffffffU, sum, step);
            if (lane >= step) sum += other;
        }
        sum += before;
        before = __shfl_sync(0xffffffffU, sum, 31);
        const float beta = inside ? p.beta[at] : 0.0F;
        const float length =
            inside ? work.key_factors[(chunk.first + row) * p.key_heads + key_head] : 0.0F;
        to.sums[row] = sum;
        to.beta[row] = beta;
        to.length[row] = length;
        to.of_w[row] = beta * length * decay(sum);
        if (inside) work.sums[at] = sum;
    }
}

/// Rows 16 warp .. 16 warp + 15 of A, as far as they are needed.
__device__ __forceinline__ void make_couplings(float* a, std::uint32_t keys, const Scalars& scalars,
                                               int warp, int lane) {
    float c[8][4] = {};
    const std::uint32_t rows = keys + block_at<dim>(2 * warp, 0) + rows_first<dim>(lane);
    const std::uint32_t columns = keys + cols_first<dim>(lane);
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
        std::uint32_t left[4];
        load_fragments(left, rows + block_at<dim>(0, 2 * k));
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            if (n > warp) continue;
            std::uint32_t right[4];
            load_fragments(right, columns + block_at<dim>(2 * n, 2 * k));
            multiply_add(c[2 * n], left, right[0], right[1]);
            multiply_add(c[2 * n + 1], left, right[2], right[3]);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int i = warp * 16 + half * 8 + lane / 4;
        const float factor = scalars.beta[i] * scalars.length[i];
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            if (n / 2 > warp) continue;
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int j = n * 8 + lane % 4 * 2 + e;
                a[i * pitch + j] = i > j ? factor * scalars.length[j] * c[n][2 * half + e] *
                                               decay(scalars.sums[i] - scalars.sums[j])
                                         : 0.0F;
            }
        }
    }
}

/// Replaces a diagonal block of A [16, 16] by (I + A)^-1: each of 16 lanes a column, from the top.
__device__ __forceinline__ void invert_diagonal(float* block, int lane) {
    const int column = lane % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = i == column ? 1.0F : 0.0F;
#pragma unroll
    for (int i = 1; i < 16; ++i) {
#pragma unroll
        for (int j = 0; j < i; ++j) x[i] -= block[i * pitch + j] * x[j];
    }
    __syncwarp();
    if (lane < 16) {
#pragma unroll
        for (int i = 0; i < 16; ++i) block[i * pitch + column] = x[i];
    }
}

/// c += x yᵀ for blocks [16, 16]: x in accumulators, y in fp32 in shared memory. Both are split
/// into two numbers of bf16, so that products have 16 bits.
__device__ __forceinline__ void multiply_split(float (&c)[2][4], const float (&x)[2][4],
                                               const float* y, int lane) {
    std::uint32_t high[4];
    std::uint32_t low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float first = x[i / 2][i % 2 * 2];
        const float second = x[i / 2][i % 2 * 2 + 1];
        high[i] = pack(first, second);
        low[i] = pack(first - low_half(high[i]), second - high_half(high[i]));
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        std::uint32_t y_high[2];
        std::uint32_t y_low[2];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const float2 pair = *reinterpret_cast<const float2*>(y + (n * 8 + lane / 4) * pitch +
                                                                 k * 8 + lane % 4 * 2);
            y_high[k] = pack(pair.x, pair.y);
            y_low[k] = pack(pair.x - low_half(y_high[k]), pair.y - high_half(y_high[k]));
        }
        multiply_add(c[n], low, y_high[0], y_high[1]);
        multiply_add(c[n], high, y_low[0], y_low[1]);
        multiply_add(c[n], high, y_high[0], y_high[1]);
    }
}

/// Blocks of the inverse below the diagonal, transposed: with X_ij the transpose of block (i, j),
/// X_ij = -(sum over j <= k < i of X_kj A_ikᵀ) T_iiᵀ. A warp has the blocks of column j = `warp`.
__device__ __forceinline__ void invert_column(float (&x)[4][2][4], const float* a, int warp,
                                              int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (i < warp) continue;
        if (i == warp) {
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                const int row = e % 4 / 2 * 8 + lane / 4;
                const int column = e / 4 * 8 + lane % 4 * 2 + e % 2;
                x[i][e / 4][e % 4] = a[(i * 16 + column) * pitch + i * 16 + row];
            }
            continue;
        }
        float sum[2][4] = {};
#pragma unroll
        for (int k = 0; k < i; ++k) {
            if (k >= warp) multiply_split(sum, x[k], a + i * 16 * pitch + k * 16, lane);
        }
        float product[2][4] = {};
        multiply_split(product, sum, a + i * 16 * (pitch + 1), lane);
#pragma unroll
        for (int e = 0; e < 8; ++e) x[i][e / 4][e % 4] = -product[e / 4][e % 4];
    }
}

__device__ __forceinline__ void store_column(const float (&x)[4][2][4], float* a, int warp,
                                             int lane) {
#pragma unroll
    for (int i = 1; i < 4; ++i) {
        if (i <= warp) continue;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const int row = e % 4 / 2 * 8 + lane / 4;
            const int column = e / 4 * 8 + lane % 4 * 2 + e % 2;
            a[(i * 16 + column) * pitch + warp * 16 + row] = x[i][e / 4][e % 4];
        }
    }
}

/// Block (i, k) of T with its columns times `factors`, as an A operand.
__device__ __forceinline__ void load_scaled(std::uint32_t (&fragment)[4], const float* t,
                                            const float* factors, int i, int k, int lane) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
        const int row = i * 16 + part % 2 * 8 + lane / 4;
        const int column = k * 16 + part / 2 * 8 + lane % 4 * 2;
        const float2 value = *reinterpret_cast<const float2*>(t + row * pitch + column);
        const float2 factor = *reinterpret_cast<const float2*>(factors + column);
        fragment[part] = pack(value.x * factor.x, value.y * factor.y);
    }
}

/// The warp's 32 columns of T diag(factors) X, left in the place of X.
__device__ __forceinline__ void multiply_inverse(const float* t, const float* factors,
                                                 std::uint32_t tile, int warp, int lane) {
    float c[4][4][4] = {};
    const std::uint32_t columns = tile + block_at<dim>(0, 4 * warp) + rows_first<dim>(lane);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        std::uint32_t right[2][4];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            load_fragments_transposed(right[n], columns + block_at<dim>(2 * k, 2 * n));
        }
#pragma unroll
        for (int i = k; i < 4; ++i) {
            std::uint32_t left[4];
            load_scaled(left, t, factors, i, k, lane);
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                multiply_add(c[i][n], left, right[n / 2][n % 2 * 2], right[n / 2][n % 2 * 2 + 1]);
            }
        }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            store_sums<dim>(tile + block_at<dim>(2 * i, 4 * warp + n), c[i][n], lane);
        }
    }
}

/// T rounded to bf16, blocks above the diagonal as zeros.
__device__ __forceinline__ void store_inverse(Bf16* to, std::int64_t ld, int rows, const float* t) {
    for (int at = static_cast<int>(threadIdx.x); at < chunk_rows * chunk_rows / 8; at += threads) {
        const int row = at / (chunk_rows / 8);
        const int column = at % (chunk_rows / 8) * 8;
        if (row >= rows) return;
        float v[8] = {};
        if (column / 16 <= row / 16) load<8>(t + row * pitch + column, v);
        store<8>(to + row * ld + column, v);
    }
}

/// Block: a chunk of a value head. It reads k and v before length_kernel() ends: whatever made them
/// had ended when that let this one start.
__global__ void __launch_bounds__(threads)
    prepare_kernel(const __grid_constant__ DeltaRuleParams p, Workspace work) {
    extern __shared__ __align__(128) char memory[];
    const Chunk chunk = chunk_of(p.rows, blockIdx.x);
    if (chunk.rows == 0) return;
    const int head = static_cast<int>(blockIdx.y);
    const int key_head = head / (p.value_heads / p.key_heads);
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;
    const int lane = thread % 32;
    const std::uint32_t keys = shared_address(memory);
    const std::uint32_t values = keys + dim_tile_bytes;
    auto* a = reinterpret_cast<float*>(memory + 2 * dim_tile_bytes);
    float* sums = a + chunk_rows * pitch;
    const Scalars scalars{sums, sums + chunk_rows, sums + 2 * chunk_rows, sums + 3 * chunk_rows};
    copy_head_in<threads>(keys, p.k, chunk.first, key_head, chunk.rows, thread);
    commit_pieces();
    copy_head_in<threads>(values, p.v, chunk.first, head, chunk.rows, thread);
    commit_pieces();
    wait_for_kernel_before();
    if (warp == 0) load_scalars(p, work, chunk, head, scalars, lane);
    wait_for_pieces<1>();
    __syncthreads();
    make_couplings(a, keys, scalars, warp, lane);
    __syncwarp();
    invert_diagonal(a + warp * 16 * (pitch + 1), lane);
    wait_for_pieces<0>();
    __syncthreads();
    float x[4][2][4];
    invert_column(x, a, warp, lane);
    __syncthreads();
    store_column(x, a, warp, lane);
    __syncthreads();
    multiply_inverse(a, scalars.of_w, keys, warp, lane);
    multiply_inverse(a, scalars.beta, values, warp, lane);
    const std::int64_t row = chunk.first * p.value_heads + head;
    if (work.inverses != nullptr) {
        store_inverse(work.inverses + row * chunk_rows, std::int64_t{p.value_heads} * chunk_rows,
                      chunk.rows, a);
    }
    __syncthreads();
    const std::int64_t ld = std::int64_t{p.value_heads} * dim;
    copy_out<chunk_rows, dim, threads>(work.w + row * dim, ld, chunk.rows, keys, thread);
    copy_out<chunk_rows, dim, threads>(work.u + row * dim, ld, chunk.rows, values, thread);
}

cudaError_t launch(cudaStream_t stream, const DeltaRuleParams& p, const Workspace& work) {
    const std::int64_t warps = p.rows.tokens * p.key_heads;
    const auto blocks = static_cast<unsigned>(pieces(warps * 32, block_threads));
    const cudaError_t error =
        launch_early(stream, length_kernel, blocks, block_threads, 0, p, work);
    if (error != cudaSuccess) return error;
    return launch_with_shared<prepare_kernel, prepare_shared>(
        stream, p.shared_limit,
        dim3(static_cast<unsigned>(most_chunks(p.rows)), static_cast<unsigned>(p.value_heads)),
        threads, p, work);
}

}  // namespace

cudaError_t prepare(cudaStream_t stream, const DeltaRuleParams& p) {
    return launch(stream, p, Workspace::of(p));
}

cudaError_t prepare(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    return launch(stream, p.forward, Workspace::of(p));
}

}  // namespace loratrain::kernels::delta
