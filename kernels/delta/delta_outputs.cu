#include "delta_chunk.cuh"
#include "delta_launch.h"

/// Outputs of the delta rule: O = e^G q^ S + P V' with P = (q^_i . k^_j e^(G_i - G_j), j <= i); and
/// the first part of their gradients, Pᵀ dO.

namespace loratrain::kernels::delta {

namespace {

constexpr int threads = 128;
constexpr int scalar_bytes = 3 * chunk_rows * 4;
constexpr int outputs_shared = 3 * dim_tile_bytes + state_bytes + scalar_bytes;
constexpr int begin_shared = 3 * dim_tile_bytes + scalar_bytes;
static_assert(outputs_shared <= delta_shared_bytes);

struct Scalars {
    float* sums;     ///< G; of rows beyond the chunk: of its last row
    float* queries;  ///< 1 / (|q| sqrt(Dk)); 0 beyond the chunk
    float* keys;     ///< 1 / |k|; 0 beyond the chunk

    __device__ explicit Scalars(void* memory)
        : sums(static_cast<float*>(memory)),
          queries(sums + chunk_rows),
          keys(queries + chunk_rows) {}

    __device__ void load(const DeltaRuleParams& p, const Workspace& work, const Chunk& chunk,
                         int head) const {
        const int row = static_cast<int>(threadIdx.x);
        if (row >= chunk_rows) return;
        const std::int64_t at = chunk.first + min(row, chunk.rows - 1);
        const std::int64_t of_key = at * p.key_heads + head / (p.value_heads / p.key_heads);
        sums[row] = work.sums[at * p.value_heads + head];
        queries[row] = row < chunk.rows ? work.query_factors[of_key] : 0.0F;
        keys[row] = row < chunk.rows ? work.key_factors[of_key] : 0.0F;
    }
};

/// c = 16 rows of a tile times another tile's rows: those of 16 from `begin` to `end`.
__device__ __forceinline__ void multiply_tiles(float (&c)[8][4], std::uint32_t left,
                                               std::uint32_t right, int begin, int end, int lane) {
    const std::uint32_t rows = left + rows_first<dim>(lane);
    const std::uint32_t columns = right + cols_first<dim>(lane);
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
        std::uint32_t a[4];
        load_fragments(a, rows + block_at<dim>(0, 2 * k));
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            if (n < begin || n >= end) continue;
            std::uint32_t b[4];
            load_fragments(b, columns + block_at<dim>(2 * n, 2 * k));
            multiply_add(c[2 * n], a, b[0], b[1]);
            multiply_add(c[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/// c += p X for the rows 16 k of a tile X [64, dim] with begin <= k < end.
__device__ __forceinline__ void multiply_sums(float (&c)[16][4], const float (&p)[8][4],
                                              std::uint32_t tile, int begin, int end, int lane) {
    const std::uint32_t at = tile + rows_first<dim>(lane);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if (k < begin || k >= end) continue;
        std::uint32_t a[4];
        as_operand(a, p[2 * k], p[2 * k + 1]);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            std::uint32_t b[4];
            load_fragments_transposed(b, at + block_at<dim>(2 * k, 2 * n));
            multiply_add(c[2 * n], a, b[0], b[1]);
            multiply_add(c[2 * n + 1], a, b[2], b[3]);
        }
    }
}

__device__ __forceinline__ void store_rows(std::uint32_t tile, const float (&c)[16][4], int lane) {
#pragma unroll
    for (int n = 0; n < 16; ++n) store_sums<dim>(tile + block_at<dim>(0, n), c[n], lane);
}

/// Block: a chunk of a value head; a warp: 16 rows.
__global__ void __launch_bounds__(threads)
    outputs_kernel(const __grid_constant__ DeltaRuleParams p, Workspace work) {
    extern __shared__ __align__(128) char memory[];
    wait_for_kernel_before();
    const Chunk chunk = chunk_of(p.rows, blockIdx.x);
    if (chunk.rows == 0) return;
    const int head = static_cast<int>(blockIdx.y);
    const int key_head = head / (p.value_heads / p.key_heads);
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;
    const int lane = thread % 32;
    const std::uint32_t queries = shared_address(memory);
    const std::uint32_t keys = queries + dim_tile_bytes;
    const std::uint32_t values = keys + dim_tile_bytes;
    const std::uint32_t state = values + dim_tile_bytes;
    const Scalars scalars(memory + 3 * dim_tile_bytes + state_bytes);
    const std::int64_t row = chunk.first * p.value_heads + head;
    copy_head_in<threads>(queries, p.q, chunk.first, key_head, chunk.rows, thread);
    copy_head_in<threads>(keys, p.k, chunk.first, key_head, chunk.rows, thread);
    commit_pieces();
    if (!chunk.begins) {
        copy_tile<state_bytes, threads>(state, state_of(p, chunk.first, head), thread);
    }
    copy_in<chunk_rows, dim, threads>(values, work.u + row * dim, std::int64_t{p.value_heads} * dim,
                                      chunk.rows, thread);
    commit_pieces();
    scalars.load(p, work, chunk, head);
    wait_for_pieces<1>();
    __syncthreads();
    const std::uint32_t own = queries + block_at<dim>(2 * warp, 0);
    float scores[8][4] = {};
    multiply_tiles(scores, own, keys, 0, warp + 1, lane);
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int i = warp * 16 + half * 8 + lane / 4;
        factor[half] = scalars.queries[i];
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            if (n / 2 > warp) continue;
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int j = n * 8 + lane % 4 * 2 + e;
                float& score = scores[n][2 * half + e];
                score = j <= i ? score * factor[half] * scalars.keys[j] *
                                     decay(scalars.sums[i] - scalars.sums[j])
                               : 0.0F;
            }
        }
        factor[half] *= decay(scalars.sums[i]);
    }
    wait_for_pieces<0>();
    __syncthreads();
    float sums[16][4] = {};
    if (!chunk.begins) {
        const std::uint32_t rows = own + rows_first<dim>(lane);
        const std::uint32_t columns = state + cols_first<dim>(lane);
#pragma unroll
        for (int k = 0; k < dim / 16; ++k) {
            std::uint32_t a[4];
            load_fragments(a, rows + block_at<dim>(0, 2 * k));
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                std::uint32_t b[4];
                load_fragments(b, columns + block_at<dim>(2 * n, 2 * k));
                multiply_add(sums[2 * n], a, b[0], b[1]);
                multiply_add(sums[2 * n + 1], a, b[2], b[3]);
            }
        }
#pragma unroll
        for (int n = 0; n < 16; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[n][e] *= factor[e / 2];
        }
    }
    multiply_sums(sums, scores, values, 0, warp + 1, lane);
    __syncwarp();
    store_rows(own, sums, lane);
    __syncthreads();
    copy_out<chunk_rows, dim, threads>(head_of(p.o, chunk.first, head), p.o.ld, chunk.rows, queries,
                                       thread);
}

/// Block: a chunk of a value head; a warp: 16 rows of Pᵀ dO.
__global__ void __launch_bounds__(threads)
    begin_kernel(const __grid_constant__ DeltaRuleBackwardParams params, Workspace work) {
    extern __shared__ __align__(128) char memory[];
    wait_for_kernel_before();
    const DeltaRuleParams& p = params.forward;
    const Chunk chunk = chunk_of(p.rows, blockIdx.x);
    if (chunk.rows == 0) return;
    const int head = static_cast<int>(blockIdx.y);
    const int key_head = head / (p.value_heads / p.key_heads);
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;
    const int lane = thread % 32;
    const std::uint32_t queries = shared_address(memory);
    const std::uint32_t keys = queries + dim_tile_bytes;
    const std::uint32_t gradients = keys + dim_tile_bytes;
    const Scalars scalars(memory + 3 * dim_tile_bytes);
    copy_head_in<threads>(queries, p.q, chunk.first, key_head, chunk.rows, thread);
    copy_head_in<threads>(keys, p.k, chunk.first, key_head, chunk.rows, thread);
    commit_pieces();
    copy_head_in<threads>(gradients, params.d_o, chunk.first, head, chunk.rows, thread);
    commit_pieces();
    scalars.load(p, work, chunk, head);
    wait_for_pieces<1>();
    __syncthreads();
    const std::uint32_t own = keys + block_at<dim>(2 * warp, 0);
    float scores[8][4] = {};
    multiply_tiles(scores, own, queries, warp, 4, lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int j = warp * 16 + half * 8 + lane / 4;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            if (n / 2 < warp) continue;
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int i = n * 8 + lane % 4 * 2 + e;
                float& score = scores[n][2 * half + e];
                score = j <= i ? score * scalars.queries[i] * scalars.keys[j] *
                                     decay(scalars.sums[i] - scalars.sums[j])
                               : 0.0F;
            }
        }
    }
    wait_for_pieces<0>();
    __syncthreads();
    float sums[16][4] = {};
    multiply_sums(sums, scores, gradients, warp, 4, lane);
    store_rows(own, sums, lane);
    __syncthreads();
    copy_out<chunk_rows, dim, threads>(work.d_u + (chunk.first * p.value_heads + head) * dim,
                                       std::int64_t{p.value_heads} * dim, chunk.rows, keys, thread);
}

dim3 grid_of(const DeltaRuleParams& p) {
    return {static_cast<unsigned>(most_chunks(p.rows)), static_cast<unsigned>(p.value_heads)};
}

}  // namespace

cudaError_t make_outputs(cudaStream_t stream, const DeltaRuleParams& p) {
    return launch_with_shared<outputs_kernel, outputs_shared>(stream, p.shared_limit, grid_of(p),
                                                              threads, p, Workspace::of(p));
}

cudaError_t begin_gradients(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    return launch_with_shared<begin_kernel, begin_shared>(
        stream, p.forward.shared_limit, grid_of(p.forward), threads, p, Workspace::of(p));
}

}  // namespace loratrain::kernels::delta
