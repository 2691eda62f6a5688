#include <type_traits>

#include "dora.h"
#include "dropout.cuh"
#include "launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr unsigned scale_threads = 128;
constexpr int rows_at_once = 4;  ///< by one thread

template <class T, int N, bool adds>
__global__ void __launch_bounds__(scale_threads) scale_kernel(DoraScaleParams p) {
    wait_for_kernel_before();
    const std::int64_t col =
        (static_cast<std::int64_t>(blockIdx.y) * scale_threads + threadIdx.x) * N;
    if (col >= p.target.cols) return;
    const auto first = static_cast<std::int64_t>(blockIdx.x) * rows_at_once;
    float v[rows_at_once][N];
    float sums[rows_at_once][N] = {};
#pragma unroll
    for (int r = 0; r < rows_at_once; ++r) {
        const std::int64_t row = first + r;
        if (row >= p.target.rows) continue;
        load<N>(static_cast<const T*>(p.source.data) + row * p.source.ld + col, v[r]);
        if constexpr (adds) {
            load<N>(static_cast<const T*>(p.added.data) + row * p.added.ld + col, sums[r]);
        }
    }
    float gains[N];
    float squares[N];
    load<N>(p.magnitude + col, gains);
    load<N>(p.squares + col, squares);
#pragma unroll
    for (int i = 0; i < N; ++i) gains[i] = gains[i] * rsqrtf(squares[i]) - p.less;
#pragma unroll
    for (int r = 0; r < rows_at_once; ++r) {
        const std::int64_t row = first + r;
        if (row >= p.target.rows) continue;
#pragma unroll
        for (int i = 0; i < N; ++i) sums[r][i] += gains[i] * v[r][i];
        store<N>(static_cast<T*>(p.target.data) + row * p.target.ld + col, sums[r]);
    }
}

template <class T, int N>
cudaError_t launch_scale(cudaStream_t stream, const DoraScaleParams& p) {
    if (p.target.rows == 0 || p.target.cols == 0) return cudaSuccess;
    constexpr std::int64_t columns = static_cast<std::int64_t>(scale_threads) * N;
    const dim3 grid(static_cast<unsigned>((p.target.rows + rows_at_once - 1) / rows_at_once),
                    static_cast<unsigned>((p.target.cols + columns - 1) / columns));
    return p.added.data != nullptr
               ? launch_early(stream, scale_kernel<T, N, true>, grid, scale_threads, 0, p)
               : launch_early(stream, scale_kernel<T, N, false>, grid, scale_threads, 0, p);
}

/// Threads side by side, each with N columns; the others share those columns' rows.
constexpr unsigned column_lanes = 4;
constexpr unsigned sum_threads = 512;
constexpr unsigned row_lanes = sum_threads / column_lanes;

/// 1 / n where neither operand has been scaled, n = sqrt(squares); 1 / m for one, n / m² for both.
__device__ __forceinline__ double factor_of(const DoraGradMagnitudeParams& p, std::int64_t col) {
    const double norm = sqrt(static_cast<double>(p.squares[col]));
    if (p.scaled == 0) return 1.0 / norm;
    const double magnitude = p.magnitude[col];
    if (magnitude == 0.0) return 0.0;
    return p.scaled == 1 ? 1.0 / magnitude : norm / (magnitude * magnitude);
}

template <class T, int N>
__global__ void __launch_bounds__(sum_threads, 2) magnitude_kernel(DoraGradMagnitudeParams p) {
    __shared__ double sums[row_lanes][column_lanes * N];
    const unsigned lane = threadIdx.x % column_lanes;
    const unsigned row_lane = threadIdx.x / column_lanes;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (column_lanes * N);
    const std::int64_t col = first + lane * N;
    double sum[N] = {};
    const auto add = [&](std::int64_t begin, auto rows) {
        constexpr int count = decltype(rows)::value;
        float dy[count][N];
        float v[count][N];
#pragma unroll
        for (int r = 0; r < count; ++r) {
            const std::int64_t row = begin + r * row_lanes;
            load<N>(static_cast<const T*>(p.dy.data) + row * p.dy.ld + col, dy[r]);
            load<N>(static_cast<const T*>(p.v.data) + row * p.v.ld + col, v[r]);
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
            float of_rows = 0.0F;
#pragma unroll
            for (int r = 0; r < count; ++r) of_rows += dy[r][i] * v[r][i];
            sum[i] += static_cast<double>(of_rows);
        }
    };
    if (col < p.dy.cols) {
        std::int64_t row = row_lane;
        constexpr std::int64_t step = static_cast<std::int64_t>(row_lanes) * rows_at_once;
        for (; row + step - row_lanes < p.dy.rows; row += step) {
            add(row, std::integral_constant<int, rows_at_once>{});
        }
        for (; row < p.dy.rows; row += row_lanes) add(row, std::integral_constant<int, 1>{});
    }
#pragma unroll
    for (int i = 0; i < N; ++i) sums[row_lane][lane * N + i] = sum[i];
    __syncthreads();
    const std::int64_t own = first + threadIdx.x;
    if (threadIdx.x >= column_lanes * N || own >= p.dy.cols) return;
    double total = 0.0;
    for (const auto& of_lane : sums) total += of_lane[threadIdx.x];
    p.gradient[own] += static_cast<float>(total * factor_of(p, own));
}

template <class T, int N>
cudaError_t launch_magnitude(cudaStream_t stream, const DoraGradMagnitudeParams& p) {
    constexpr unsigned columns = column_lanes * N;
    const auto blocks = static_cast<unsigned>((p.dy.cols + columns - 1) / columns);
    magnitude_kernel<T, N><<<blocks, sum_threads, 0, stream>>>(p);
    return cudaGetLastError();
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

cudaError_t dora_scale(cudaStream_t stream, const DoraScaleParams& params) {
    const bool is_wide = all_wide({&params.target, &params.source}) &&
                         aligned_16(params.magnitude) && aligned_16(params.squares) &&
                         (params.added.data == nullptr || rows_aligned(params.added));
    return with_type(params.target.type, [&](auto element) {
        using T = decltype(element);
        return is_wide ? launch_scale<T, wide>(stream, params) : launch_scale<T, 1>(stream, params);
    });
}

cudaError_t dora_grad_magnitude(cudaStream_t stream, const DoraGradMagnitudeParams& params) {
    if (params.dy.rows == 0 || params.dy.cols == 0) return cudaSuccess;
    return with_type(params.dy.type, [&](auto element) {
        using T = decltype(element);
        return all_wide({&params.dy, &params.v}) ? launch_magnitude<T, wide>(stream, params)
                                                 : launch_magnitude<T, 1>(stream, params);
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
