#include "dora.h"
#include "dropout.cuh"
#include "launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr int norm_rows = 8;  ///< of W, by one block
constexpr unsigned column_lanes = 32;
constexpr unsigned row_lanes = block_threads / column_lanes;

/// Each thread takes every 256th column of the block's rows; B's rows are in shared memory.
template <class T>
__global__ void __launch_bounds__(block_threads) norms_kernel(DoraNormsParams p) {
    extern __shared__ float bs[];
    __shared__ double sums[norm_rows][block_threads];
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * norm_rows;
    const std::int64_t left = p.w.rows - first;
    const int rows = static_cast<int>(left < norm_rows ? left : norm_rows);
    for (int i = static_cast<int>(threadIdx.x); i < norm_rows * p.rank; i += block_threads) {
        bs[i] = i < rows * p.rank ? p.b[first * p.rank + i] : 0.0F;
    }
    __syncthreads();
    double squares[norm_rows] = {};
    for (std::int64_t k = threadIdx.x; k < p.w.cols; k += block_threads) {
        float delta[norm_rows] = {};
        for (int i = 0; i < p.rank; ++i) {
            const float a = p.a[i * p.w.cols + k];
#pragma unroll
            for (int j = 0; j < norm_rows; ++j) delta[j] += bs[j * p.rank + i] * a;
        }
#pragma unroll
        for (int j = 0; j < norm_rows; ++j) {
            if (j >= rows) break;
            const float w = to_float(static_cast<const T*>(p.w.data)[(first + j) * p.w.ld + k]);
            const double sum = w + p.scale * delta[j];
            squares[j] += sum * sum;
        }
    }
#pragma unroll
    for (int j = 0; j < norm_rows; ++j) sums[j][threadIdx.x] = squares[j];
    for (unsigned half = block_threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
#pragma unroll
        for (int j = 0; j < norm_rows; ++j) {
            sums[j][threadIdx.x] += sums[j][threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        for (int j = 0; j < rows; ++j) p.squares[first + j] = static_cast<float>(sums[j][0]);
    }
}

template <class T, int N>
struct DoraScaleBody {
    T* target;
    const T* source;
    const float* magnitude;
    const float* squares;
    std::int64_t target_ld, source_ld;
    float less;
    bool accumulate;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float v[N];
        float sum[N] = {};
        load<N>(source + row * source_ld + col, v);
        if (accumulate) load<N>(target + row * target_ld + col, sum);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float gain = magnitude[col + i] / sqrtf(squares[col + i]) - less;
            sum[i] += gain * v[i];
        }
        store<N>(target + row * target_ld + col, sum);
    }
};

template <class T, int N>
cudaError_t launch_scale(cudaStream_t stream, const DoraScaleParams& p) {
    return launch_elements<N>(
        stream, p.target.rows, p.target.cols,
        DoraScaleBody<T, N>{pointer<T>(p.target), pointer<const T>(p.source), p.magnitude,
                            p.squares, p.target.ld, p.source.ld, p.less, p.accumulate});
}

/// A block takes 32 columns; 8 threads share a column's rows.
template <class T>
__global__ void __launch_bounds__(block_threads) magnitude_kernel(DoraGradMagnitudeParams p) {
    __shared__ double sums[row_lanes][column_lanes];
    const unsigned lane = threadIdx.x % column_lanes;
    const unsigned row_lane = threadIdx.x / column_lanes;
    const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * column_lanes + lane;
    double sum = 0.0;
    if (col < p.dy.cols) {
        for (std::int64_t row = row_lane; row < p.dy.rows; row += row_lanes) {
            sum += to_float(static_cast<const T*>(p.dy.data)[row * p.dy.ld + col]) *
                   to_float(static_cast<const T*>(p.v.data)[row * p.v.ld + col]);
        }
    }
    sums[row_lane][lane] = sum;
    __syncthreads();
    if (row_lane != 0 || col >= p.dy.cols) return;
    for (unsigned i = 1; i < row_lanes; ++i) sum += sums[i][lane];
    const double divisor = p.magnitude == nullptr ? sqrt(static_cast<double>(p.squares[col]))
                                                  : static_cast<double>(p.magnitude[col]);
    if (divisor == 0.0 && p.magnitude != nullptr) return;
    p.gradient[col] += static_cast<float>(sum / divisor);
}

template <class T, int N>
struct DropBody {
    DropRowsParams p;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float v[N];
        float sum[N] = {};
        load<N>(static_cast<const T*>(p.x.data) + row * p.x.ld + col, v);
        T* y = static_cast<T*>(p.y.data) + row * p.y.ld + col;
        if (p.accumulate) load<N>(y, sum);
        const uint4 bits = dropout_bits(
            p.key,
            dropout_row(p.key, static_cast<std::uint32_t>(p.sample_ids[row]),
                        static_cast<std::uint32_t>(p.positions[row])),
            dropout_column(p.key, p.step, static_cast<std::uint32_t>(p.first_block + col / 8)));
        const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
        const float factor = dropout_scale(p.threshold);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const int place = static_cast<int>((col + i) % 8);
            std::uint32_t word = words[0];
#pragma unroll
            for (int w = 1; w < 4; ++w) word = place / 2 == w ? words[w] : word;
            const std::uint32_t random = (place % 2 == 0 ? word : word >> 16U) & 0x7fffU;
            sum[i] += random < p.threshold ? 0.0F : factor * v[i];
        }
        store<N>(y, sum);
    }
};

}  // namespace

cudaError_t dora_norms(cudaStream_t stream, const DoraNormsParams& params) {
    if (params.w.rows == 0) return cudaSuccess;
    const auto blocks = static_cast<unsigned>((params.w.rows + norm_rows - 1) / norm_rows);
    const std::size_t shared = sizeof(float) * norm_rows * static_cast<std::size_t>(params.rank);
    return with_type(params.w.type, [&](auto element) {
        using T = decltype(element);
        if (shared > 24U << 10U) {
            const cudaError_t status =
                cudaFuncSetAttribute(norms_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared));
            if (status != cudaSuccess) return status;
        }
        norms_kernel<T><<<blocks, block_threads, shared, stream>>>(params);
        return cudaGetLastError();
    });
}

cudaError_t dora_scale(cudaStream_t stream, const DoraScaleParams& params) {
    return with_type(params.target.type, [&](auto element) {
        using T = decltype(element);
        return all_wide({&params.target, &params.source}) ? launch_scale<T, wide>(stream, params)
                                                          : launch_scale<T, 1>(stream, params);
    });
}

cudaError_t dora_grad_magnitude(cudaStream_t stream, const DoraGradMagnitudeParams& params) {
    if (params.dy.rows == 0 || params.dy.cols == 0) return cudaSuccess;
    const auto blocks = static_cast<unsigned>((params.dy.cols + column_lanes - 1) / column_lanes);
    return with_type(params.dy.type, [&](auto element) {
        magnitude_kernel<decltype(element)><<<blocks, block_threads, 0, stream>>>(params);
        return cudaGetLastError();
    });
}

cudaError_t drop_rows(cudaStream_t stream, const DropRowsParams& params) {
    return with_type(params.y.type, [&](auto element) {
        using T = decltype(element);
        const std::int64_t rows = params.y.rows;
        const std::int64_t cols = params.y.cols;
        return all_wide({&params.y, &params.x})
                   ? launch_elements<wide>(stream, rows, cols, DropBody<T, wide>{params})
                   : launch_elements<1>(stream, rows, cols, DropBody<T, 1>{params});
    });
}

}  // namespace loratrain::kernels
