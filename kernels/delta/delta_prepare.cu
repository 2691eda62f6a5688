#include "delta_chunk.cuh"
#include "delta_launch.h"

/// What the chunks of the delta rule need before the states are known: with k^ and q^ of length one
/// and G the sums of g, A = strictly lower part of (beta_i e^(G_i - G_j) k^_i . k^_j), T = (I +
/// A)^-1, W = T (beta e^G k^), U = T (beta v), P = lower part of (e^(G_i - G_j) q^_i . k^_j).

namespace loratrain::kernels::delta {

namespace {

constexpr int threads = group_threads;
/// Floats of a row of A: a fragment's 8-byte reads meet no bank twice.
constexpr int pitch = chunk_rows + 8;
constexpr int square_bytes = chunk_rows * pitch * 4;
constexpr int scalar_bytes = 6 * chunk_rows * 4;
constexpr int prepare_shared = 2 * dim_tile_bytes + square_bytes + scalar_bytes;

struct Scalars {
    float* sums;     ///< G; of rows beyond the chunk: of its last row
    float* beta;     ///< 0 beyond the chunk
    float* squares;  ///< |q|^2, then |k|^2 of each row
    float* of_w;     ///< -beta e^G / |k|

    __device__ explicit Scalars(float* memory)
        : sums(memory),
          beta(memory + chunk_rows),
          squares(memory + 2 * chunk_rows),
          of_w(memory + 4 * chunk_rows) {}
    __device__ float query(int row) const {
        return rsqrtf((squares[row] + delta_length_eps) * static_cast<float>(dim));
    }
    __device__ float key(int row) const {
        return rsqrtf(squares[chunk_rows + row] + delta_length_eps);
    }
};

/// Sums of g and beta, by the first warp.
__device__ __forceinline__ void load_scalars(const DeltaRuleParams& p, const Chunk& chunk, int head,
                                             const Scalars& to, int lane) {
    float before = 0.0F;
#pragma unroll
    for (int part = 0; part < chunk_rows; part += 32) {
        const int row = part + lane;
        const bool inside = row < chunk.rows;
        const std::int64_t at = (chunk.first + row) * p.value_heads + head;
        float sum = inside ? p.g[at] : 0.0F;
        to.beta[row] = inside ? p.beta[at] : 0.0F;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const float other = __shfl_up_sync(0xffffffffU, sum, step);
            if (lane >= step) sum += other;
        }
        sum += before;
        before = __shfl_sync(0xffffffffU, sum, 31);
        to.sums[row] = sum;
    }
}

/// Each thread a row: of q in the first half of the block, of k in the second.
__device__ __forceinline__ void sum_squares(std::uint32_t tiles, const Scalars& to, int thread) {
    const int row = thread % chunk_rows;
    const std::uint32_t at =
        tiles + thread / chunk_rows * dim_tile_bytes + block_at<dim>(row / 8, 0) + row % 8 * 16;
    float sum = 0.0F;
#pragma unroll 4
    for (int piece = 0; piece < dim / 8; ++piece) {
        const uint4 v = load_piece(at + piece * block_bytes);
        for (const std::uint32_t word : {v.x, v.y, v.z, v.w}) {
            sum += low_half(word) * low_half(word) + high_half(word) * high_half(word);
        }
    }
    to.squares[thread] = sum;
}

/// What other kernels need of rows, each thread one.
__device__ __forceinline__ void store_scalars(const DeltaRuleParams& p, const Workspace& work,
                                              const Chunk& chunk, int head, const Scalars& scalars,
                                              int row) {
    const float sum = scalars.sums[row];
    const float query = scalars.query(row);
    const float key = scalars.key(row);
    scalars.of_w[row] = -scalars.beta[row] * key * decay(sum);
    if (row >= chunk.rows) return;
    *work.at(work.sums + row, head, chunk.first) = sum;
    *work.at(work.of_queries + row, head, chunk.first) = query * decay(sum);
    *work.at(work.of_keys + row, head, chunk.first) =
        key * decay(scalars.sums[chunk_rows - 1] - sum);
    const int group = p.value_heads / p.key_heads;
    if (head % group != 0) return;
    *work.at(work.query_factors + row, head / group, chunk.first) = query;
    *work.at(work.key_factors + row, head / group, chunk.first) = key;
}

/// k^ kT and q kT of the warp's rows, into A and P.
__device__ __forceinline__ void make_couplings(float* a, float (&of_k)[8][4], float (&of_q)[8][4],
                                               const Scalars& scalars, int warp, int lane) {
    float column_sums[8][2];
    float column_keys[8][2];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        if (n / 2 > warp) continue;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int j = n * 8 + lane % 4 * 2 + e;
            column_sums[n][e] = scalars.sums[j];
            column_keys[n][e] = scalars.key(j);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int i = warp * 16 + half * 8 + lane / 4;
        const float sum = scalars.sums[i];
        const float key = scalars.beta[i] * scalars.key(i);
        const float query = scalars.query(i);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            if (n / 2 > warp) {
                of_q[n][2 * half] = 0.0F;
                of_q[n][2 * half + 1] = 0.0F;
                continue;
            }
            float coupling[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int j = n * 8 + lane % 4 * 2 + e;
                const float factor = column_keys[n][e] * decay(sum - column_sums[n][e]);
                coupling[e] = i > j ? key * factor * of_k[n][2 * half + e] : 0.0F;
                float& score = of_q[n][2 * half + e];
                score = i >= j ? query * factor * score : 0.0F;
            }
            *reinterpret_cast<float2*>(a + i * pitch + n * 8 + lane % 4 * 2) =
                make_float2(coupling[0], coupling[1]);
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
        multiply(c[n], low, y_high[0], y_high[1]);
        multiply(c[n], high, y_low[0], y_low[1]);
        multiply(c[n], high, y_high[0], y_high[1]);
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

/// The warp's rows of T with its columns times `factors`, as A operands.
__device__ __forceinline__ void load_scaled(std::uint32_t (&fragments)[4][4], const float* t,
                                            const float* factors, int warp, int lane) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            fragments[k][part] = 0;
            if (k > warp) continue;
            const int row = warp * 16 + part % 2 * 8 + lane / 4;
            const int column = k * 16 + part / 2 * 8 + lane % 4 * 2;
            const float2 value = *reinterpret_cast<const float2*>(t + row * pitch + column);
            const float2 factor = *reinterpret_cast<const float2*>(factors + column);
            fragments[k][part] = pack(value.x * factor.x, value.y * factor.y);
        }
    }
}

/// c = T diag(factors) X for a tile X.
__device__ __forceinline__ void multiply_inverse(float (&c)[16][4], const float* t,
                                                 const float* factors, std::uint32_t tile, int warp,
                                                 int lane) {
    std::uint32_t a[4][4];
    load_scaled(a, t, factors, warp, lane);
    begin_products(c);
#pragma unroll
    for (int k = 0; k < 4; ++k) add_columns<dim>(c, a[k], tile + block_at<dim>(2 * k, 0), lane);
    commit_products();
    wait_for_products<0>(c);
}

/// The warp's rows of T, blocks above the diagonal as zeros.
__device__ __forceinline__ void store_inverse(Bf16* to, const float* t, int warp, int rows,
                                              int lane) {
    store_blocks<chunk_rows>(to, rows, lane, [&](const auto& store) {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = warp * 16 + half * 8 + lane / 4;
                float2 value = make_float2(0.0F, 0.0F);
                if (n / 2 <= warp) {
                    value =
                        *reinterpret_cast<const float2*>(t + row * pitch + n * 8 + lane % 4 * 2);
                }
                store(2 * warp + half, n, pack(value.x, value.y));
            }
        }
    });
}

/// Block: a chunk of a value head.
template <bool of_gradients>
__global__ void __launch_bounds__(threads, 4)
    prepare_kernel(const __grid_constant__ DeltaRuleParams p, Workspace work) {
    extern __shared__ __align__(128) char memory[];
    wait_for_kernel_before();
    const Chunk chunk = chunk_of(p.rows, blockIdx.x);
    if (chunk.rows == 0) return;
    const int head = static_cast<int>(blockIdx.y);
    const int key_head = head / (p.value_heads / p.key_heads);
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = __shfl_sync(0xffffffffU, thread / 32, 0);
    const int lane = thread % 32;
    const std::uint32_t queries = shared_address(memory);  // then v
    const std::uint32_t keys = queries + dim_tile_bytes;
    auto* a = reinterpret_cast<float*>(memory + 2 * dim_tile_bytes);
    const Scalars scalars(a + chunk_rows * pitch);
    copy_head_in<threads>(queries, p.q, chunk.first, key_head, chunk.rows, thread);
    copy_head_in<threads>(keys, p.k, chunk.first, key_head, chunk.rows, thread);
    commit_copies();
    if (warp == 0) load_scalars(p, chunk, head, scalars, lane);
    wait_for_copies();
    show_to_products();
    __syncthreads();
    float of_k[8][4] = {};
    float of_q[8][4] = {};
    begin_products(of_k, of_q);
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
        const std::uint32_t right = keys + block_at<dim>(0, 2 * k);
        add_rows<dim>(of_k, Left<dim>{right}, right, warp, lane);
        add_rows<dim>(of_q, Left<dim>{queries + block_at<dim>(0, 2 * k)}, right, warp, lane);
    }
    commit_products();
    sum_squares(queries, scalars, thread);
    wait_for_products<0>(of_k, of_q);
    __syncthreads();
    const std::uint32_t values = queries;
    copy_head_in<threads>(values, p.v, chunk.first, head, chunk.rows, thread);
    commit_copies();
    make_couplings(a, of_k, of_q, scalars, warp, lane);
    store_rows(work.at(work.scores, head, chunk.first, chunk_rows), of_q, warp, chunk.rows, lane);
    if (thread < chunk_rows) store_scalars(p, work, chunk, head, scalars, thread);
    __syncwarp();
    invert_diagonal(a + warp * 16 * (pitch + 1), lane);
    __syncthreads();
    float x[4][2][4];
    invert_column(x, a, warp, lane);
    __syncthreads();
    store_column(x, a, warp, lane);
    wait_for_copies();
    show_to_products();
    __syncthreads();
    if constexpr (of_gradients) {
        store_inverse(work.at(work.inverses, head, chunk.first, chunk_rows), a, warp, chunk.rows,
                      lane);
    }
    {
        float w[16][4] = {};
        multiply_inverse(w, a, scalars.of_w, keys, warp, lane);
        store_rows(work.at(work.w, head, chunk.first, dim), w, warp, chunk.rows, lane);
    }
    float u[16][4] = {};
    multiply_inverse(u, a, scalars.beta, values, warp, lane);
    store_rows(work.at(work.u, head, chunk.first, dim), u, warp, chunk.rows, lane);
}

template <bool of_gradients>
cudaError_t launch(cudaStream_t stream, const DeltaRuleParams& p) {
    return launch_with_shared<prepare_kernel<of_gradients>, prepare_shared>(
        stream, p.shared_limit,
        dim3(static_cast<unsigned>(most_chunks(p.rows)), static_cast<unsigned>(p.value_heads)),
        threads, p, Workspace::of(p, of_gradients));
}

}  // namespace

cudaError_t prepare(cudaStream_t stream, const DeltaRuleParams& p) {
    return launch<false>(stream, p);
}

cudaError_t prepare(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    return launch<true>(stream, p.forward);
}

}  // namespace loratrain::kernels::delta
