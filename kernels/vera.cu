#include "launch.cuh"
#include "vera.h"

namespace loratrain::kernels {

namespace {

constexpr int column_lanes = 32;  ///< a warp
constexpr int row_lanes = block_threads / column_lanes;
constexpr int rows_of_lane = 4;
constexpr int block_rows = row_lanes * rows_of_lane;

struct ProductBody {
    VeraProductParams p;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const std::int64_t at = row * p.rank + col;
        p.product[at] = p.scale_b[row] * p.b[at] * p.scale_d[col];
    }
};

/// Of the eight row lanes' terms of a column, for row lane 0; every thread calls it.
__device__ double sum_over_row_lanes(double term) {
    __shared__ double terms[row_lanes][column_lanes];
    const unsigned lane = threadIdx.x % column_lanes;
    const unsigned row_lane = threadIdx.x / column_lanes;
    __syncthreads();
    terms[row_lane][lane] = term;
    __syncthreads();
    double sum = 0.0;
    for (int i = 0; row_lane == 0 && i < row_lanes; ++i) sum += terms[i][lane];
    return sum;
}

/// A block takes 32 rows. What they give to grad_d is left in the first of them, the others
/// become 0.
__global__ void __launch_bounds__(block_threads) rows_kernel(VeraGradientsParams p) {
    const int rank = p.of.rank;
    const int lane = static_cast<int>(threadIdx.x) % column_lanes;
    const int row_lane = static_cast<int>(threadIdx.x) / column_lanes;
    const std::int64_t block_first = static_cast<std::int64_t>(blockIdx.x) * block_rows;
    double of_rows[rows_of_lane] = {};
    for (int first = 0; first < rank; first += column_lanes) {
        const int col = first + lane;
        double of_column = 0.0;
#pragma unroll
        for (int i = 0; i < rows_of_lane; ++i) {
            const std::int64_t row = block_first + i * row_lanes + row_lane;
            if (col >= rank || row >= p.of.out) continue;
            const std::int64_t at = row * rank + col;
            const double value = static_cast<double>(p.gradient[at]) * p.of.b[at];
            of_column += value * p.of.scale_b[row];
            of_rows[i] += value * p.of.scale_d[col];
            p.gradient[at] = 0.0F;
        }
        const double sum = sum_over_row_lanes(of_column);
        if (row_lane == 0 && col < rank) {
            p.gradient[block_first * rank + col] = static_cast<float>(sum);
        }
    }
#pragma unroll
    for (int i = 0; i < rows_of_lane; ++i) {
        for (int other = column_lanes / 2; other > 0; other /= 2) {
            of_rows[i] += __shfl_xor_sync(0xffffffffU, of_rows[i], other);
        }
        const std::int64_t row = block_first + i * row_lanes + row_lane;
        if (lane == 0 && row < p.of.out) p.grad_b[row] += static_cast<float>(of_rows[i]);
    }
}

/// A block takes 32 columns: what rows_kernel has left.
__global__ void __launch_bounds__(block_threads) columns_kernel(VeraGradientsParams p) {
    const int rank = p.of.rank;
    const int col =
        static_cast<int>(blockIdx.x) * column_lanes + static_cast<int>(threadIdx.x) % column_lanes;
    const int row_lane = static_cast<int>(threadIdx.x) / column_lanes;
    double term = 0.0;
    for (std::int64_t row = row_lane * block_rows; col < rank && row < p.of.out;
         row += row_lanes * block_rows) {
        float& left = p.gradient[row * rank + col];
        term += left;
        left = 0.0F;
    }
    const double sum = sum_over_row_lanes(term);
    if (row_lane == 0 && col < rank) p.grad_d[col] += static_cast<float>(sum);
}

}  // namespace

cudaError_t vera_product(cudaStream_t stream, const VeraProductParams& params) {
    return launch_elements<1>(stream, params.out, params.rank, ProductBody{params});
}

cudaError_t vera_gradients(cudaStream_t stream, const VeraGradientsParams& params) {
    if (params.of.out == 0 || params.of.rank == 0) return cudaSuccess;
    const auto blocks = static_cast<unsigned>((params.of.out + block_rows - 1) / block_rows);
    rows_kernel<<<blocks, block_threads, 0, stream>>>(params);
    const auto columns = static_cast<unsigned>((params.of.rank + column_lanes - 1) / column_lanes);
    columns_kernel<<<columns, block_threads, 0, stream>>>(params);
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
