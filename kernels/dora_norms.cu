#include "dora.h"
#include "launch.cuh"
#include "tensor_core.cuh"

namespace loratrain::kernels {

namespace {

constexpr int plain_rows = 8;  ///< of W, by one block

/// Each thread takes every 256th column of the block's rows; B's rows are in shared memory.
template <class T>
__global__ void __launch_bounds__(block_threads) plain_kernel(DoraNormsParams p) {
    extern __shared__ float bs[];
    __shared__ double sums[plain_rows][block_threads];
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * plain_rows;
    const std::int64_t left = p.w.rows - first;
    const int rows = static_cast<int>(left < plain_rows ? left : plain_rows);
    for (int i = static_cast<int>(threadIdx.x); i < plain_rows * p.rank; i += block_threads) {
        bs[i] = i < rows * p.rank ? p.b[first * p.rank + i] : 0.0F;
    }
    __syncthreads();
    double squares[plain_rows] = {};
    for (std::int64_t k = threadIdx.x; k < p.w.cols; k += block_threads) {
        float delta[plain_rows] = {};
        for (int i = 0; i < p.rank; ++i) {
            const float a = p.a[i * p.w.cols + k];
#pragma unroll
            for (int j = 0; j < plain_rows; ++j) delta[j] += bs[j * p.rank + i] * a;
        }
#pragma unroll
        for (int j = 0; j < plain_rows; ++j) {
            if (j >= rows) break;
            const float w = to_float(static_cast<const T*>(p.w.data)[(first + j) * p.w.ld + k]);
            const double sum = w + p.scale * delta[j];
            squares[j] += sum * sum;
        }
    }
#pragma unroll
    for (int j = 0; j < plain_rows; ++j) sums[j][threadIdx.x] = squares[j];
    for (unsigned half = block_threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
#pragma unroll
        for (int j = 0; j < plain_rows; ++j) {
            sums[j][threadIdx.x] += sums[j][threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        for (int j = 0; j < rows; ++j) p.squares[first + j] = static_cast<float>(sums[j][0]);
    }
}

// With tensor cores: scale B A of a warp's tile as products of 16 ranks. A and B in fp32 are each
// split into two numbers of bf16, so that products have 16 bits.

constexpr unsigned tile_threads = 512;
constexpr int tile_warps = tile_threads / 32;
constexpr int row_groups = 2;  ///< of 16 rows, of a block
constexpr int tile_rows = 16 * row_groups;
constexpr int rank_step = 16;
constexpr int column_groups = chunk_columns / 8;
constexpr std::size_t most_staged = 80U << 10U;  ///< bytes of B in a block's shared memory

struct Halves {
    std::uint32_t high;
    std::uint32_t low;
};

__device__ __forceinline__ Halves split(float first, float second) {
    const std::uint32_t high = pack_halves(first, second);
    return {high, pack_halves(first - low_half(high), second - high_half(high))};
}

/// Puts scale B of the block's rows into shared memory, as left operands: for each rank step and
/// group of rows the high and the low halves, a piece for each lane.
__device__ __forceinline__ void stage_b(const DoraNormsParams& p, uint4* staged, std::int64_t first,
                                        int steps) {
    const auto value = [&](std::int64_t row, int i) {
        return row < p.w.rows && i < p.rank ? p.scale * p.b[row * p.rank + i] : 0.0F;
    };
    for (int at = static_cast<int>(threadIdx.x); at < steps * row_groups * 32; at += tile_threads) {
        const int lane = at % 32;
        const std::int64_t row = first + at / 32 % row_groups * 16 + lane / 4;
        const int i = at / (32 * row_groups) * rank_step + lane % 4 * 2;
        Halves of[4];
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            const std::int64_t own = row + part % 2 * 8;
            const int rank = i + part / 2 * 8;
            of[part] = split(value(own, rank), value(own, rank + 1));
        }
        uint4* to = staged + at / 32 * 64 + lane;
        to[0] = make_uint4(of[0].high, of[1].high, of[2].high, of[3].high);
        to[32] = make_uint4(of[0].low, of[1].low, of[2].low, of[3].low);
    }
}

/// A lane's columns of A for the ranks of a step, as right operands.
__device__ __forceinline__ void load_a(Halves (&of_a)[column_groups][2], const DoraNormsParams& p,
                                       std::int64_t column, int step, int lane) {
    const std::int64_t own = column + lane / 4 * column_groups;
    float a[4][column_groups] = {};  // of ranks r, r + 1, r + 8 and r + 9
#pragma unroll
    for (int part = 0; part < 4; ++part) {
        const int i = step * rank_step + lane % 4 * 2 + part / 2 * 8 + part % 2;
        if (i < p.rank && own < p.w.cols) {
            load<column_groups>(p.a + i * p.w.cols + own, a[part]);
        }
    }
#pragma unroll
    for (int n = 0; n < column_groups; ++n) {
        of_a[n][0] = split(a[0][n], a[1][n]);
        of_a[n][1] = split(a[2][n], a[3][n]);
    }
}

/// sums += scale B A of the warp's tile for the ranks of a step. Column n + 4e of a lane's 8 is
/// sums[.][n][.. + e].
__device__ __forceinline__ void add_step(float (&sums)[row_groups][column_groups][4],
                                         const Halves (&of_a)[column_groups][2],
                                         const uint4* staged, int step, int lane) {
    uint4 high[row_groups];
    uint4 low[row_groups];
#pragma unroll
    for (int group = 0; group < row_groups; ++group) {
        const uint4* const b = staged + (step * row_groups + group) * 64 + lane;
        high[group] = b[0];
        low[group] = b[32];
    }
    // Products that do not depend on each other one after the other.
    const auto add = [&](const uint4(&b)[row_groups], std::uint32_t Halves::*half) {
#pragma unroll
        for (int group = 0; group < row_groups; ++group) {
#pragma unroll
            for (int n = 0; n < column_groups; ++n) {
                multiply_add(sums[group][n], b[group].x, b[group].y, b[group].z, b[group].w,
                             of_a[n][0].*half, of_a[n][1].*half);
            }
        }
    };
    add(low, &Halves::high);
    add(high, &Halves::low);
    add(high, &Halves::high);
}

/// A lane's 8 columns of its 4 rows of a tile of W; zeros beyond W.
__device__ __forceinline__ void load_tile(uint4 (&w)[2 * row_groups], const DoraNormsParams& p,
                                          std::int64_t first, std::int64_t column, int lane) {
    const std::int64_t own = column + lane % 4 * 8;
#pragma unroll
    for (int part = 0; part < 2 * row_groups; ++part) {
        const std::int64_t row = first + part * 8 + lane / 4;
        w[part] = make_uint4(0, 0, 0, 0);
        if (row >= p.w.rows || own >= p.w.cols) continue;
        w[part] = *reinterpret_cast<const uint4*>(static_cast<const Bf16*>(p.w.data) +
                                                  row * p.w.ld + own);
    }
}

/// Block: tile_rows rows of W in bf16, whose warps take chunks of columns in turn; 8 neighbouring
/// columns of 4 rows are a lane's.
__global__ void __launch_bounds__(tile_threads) tile_kernel(DoraNormsParams p) {
    extern __shared__ uint4 staged[];
    __shared__ double sums[tile_warps][tile_rows];
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * tile_rows;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int steps = (p.rank + rank_step - 1) / rank_step;
    stage_b(p, staged, first, steps);
    __syncthreads();
    double squares[row_groups][2] = {};
    for (std::int64_t column = warp * chunk_columns; column < p.w.cols;
         column += tile_warps * chunk_columns) {
        uint4 w[2 * row_groups];
        load_tile(w, p, first, column, lane);
        float c[row_groups][column_groups][4] = {};
        for (int step = 0; step < steps; ++step) {
            Halves of_a[column_groups][2];
            load_a(of_a, p, column, step, lane);
            add_step(c, of_a, staged, step, lane);
        }
#pragma unroll
        for (int part = 0; part < 2 * row_groups; ++part) {
            const std::uint32_t words[4] = {w[part].x, w[part].y, w[part].z, w[part].w};
            float square = 0.0F;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float value =
                    (i % 2 == 0 ? low_half(words[i / 2]) : high_half(words[i / 2])) +
                    c[part / 2][i % 4][part % 2 * 2 + i / 4];
                square += value * value;
            }
            squares[part / 2][part % 2] += static_cast<double>(square);
        }
    }
#pragma unroll
    for (int part = 0; part < 2 * row_groups; ++part) {
        double& square = squares[part / 2][part % 2];
        square += __shfl_xor_sync(0xffffffffU, square, 1);
        square += __shfl_xor_sync(0xffffffffU, square, 2);
        if (lane % 4 == 0) sums[warp][part * 8 + lane / 4] = square;
    }
    __syncthreads();
    const std::int64_t row = first + threadIdx.x;
    if (threadIdx.x >= tile_rows || row >= p.w.rows) return;
    double sum = 0.0;
    for (const auto& of_warp : sums) sum += of_warp[threadIdx.x];
    p.squares[row] = static_cast<float>(sum);
}

/// `rows`: of W, by one block.
cudaError_t launch(cudaStream_t stream, void (*kernel)(DoraNormsParams), int rows, unsigned threads,
                   std::size_t shared, const DoraNormsParams& p) {
    if (shared > 24U << 10U) {
        const cudaError_t status = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                        static_cast<int>(shared));
        if (status != cudaSuccess) return status;
    }
    kernel<<<static_cast<unsigned>((p.w.rows + rows - 1) / rows), threads, shared, stream>>>(p);
    return cudaGetLastError();
}

}  // namespace

cudaError_t dora_norms(cudaStream_t stream, const DoraNormsParams& params) {
    if (params.w.rows == 0) return cudaSuccess;
    const auto rank = static_cast<std::size_t>(params.rank);
    const std::size_t staged = (rank + rank_step - 1) / rank_step * row_groups * 64 * sizeof(uint4);
    if (params.w.type == Element::bf16 && all_wide({&params.w}) && aligned_16(params.a) &&
        staged <= most_staged) {
        return launch(stream, tile_kernel, tile_rows, tile_threads, staged, params);
    }
    return with_type(params.w.type, [&](auto element) {
        return launch(stream, plain_kernel<decltype(element)>, plain_rows, block_threads,
                      sizeof(float) * plain_rows * rank, params);
    });
}

}  // namespace loratrain::kernels
