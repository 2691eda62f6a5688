#include "quantize.h"

#include "launch.cuh"
#include "quantize.cuh"
#include "sizes.h"

namespace loratrain::kernels {

namespace {

/// A row per warp, held in registers between its maximum and its codes.
template <class T, int passes>
__global__ void __launch_bounds__(block_threads)
    warp_rows_kernel(Matrix x, const float* column_scales, Fp8Codes to) {
    constexpr int warps = block_threads / 32;
    const std::int64_t row = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32;
    if (row >= x.rows) return;
    const T* from = static_cast<const T*>(x.data) + row * x.ld;
    HeldRow<T, 32, passes> held;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        const std::int64_t col = held.column(pass);
        if (col < x.cols) held.take(pass, from + col);
    }
    held.write_codes(x.cols, column_scales, to, row, nullptr);
}

/// A row per block, held likewise.
template <class T, int threads, int passes>
__global__ void __launch_bounds__(threads)
    held_rows_kernel(Matrix x, const float* column_scales, Fp8Codes to) {
    __shared__ std::uint32_t scratch[threads / 32];
    const std::int64_t row = blockIdx.x;
    const T* from = static_cast<const T*>(x.data) + row * x.ld;
    HeldRow<T, threads, passes> held;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        const std::int64_t col = held.column(pass);
        if (col < x.cols) held.take(pass, from + col);
    }
    held.write_codes(x.cols, column_scales, to, row, scratch);
}

/// A row per block, read twice: of any length and alignment.
template <class T>
__global__ void __launch_bounds__(block_threads)
    any_rows_kernel(Matrix x, const float* column_scales, Fp8Codes to) {
    __shared__ std::uint32_t scratch[block_threads / 32];
    const std::int64_t row = blockIdx.x;
    const T* from = static_cast<const T*>(x.data) + row * x.ld;
    const auto value_at = [&](std::int64_t col) {
        const float value = to_float(from[col]);
        return column_scales == nullptr ? value : value * column_scales[col];
    };
    std::uint32_t largest = 0;
    for (std::int64_t col = threadIdx.x; col < x.cols; col += block_threads) {
        largest = max(largest, magnitude_bits(value_at(col)));
    }
    const RowCoding coding = row_coding(block_max(largest, scratch));
    for (std::int64_t col = threadIdx.x; col < x.cols; col += block_threads) {
        const float v[1] = {value_at(col)};
        store_codes<1>(to.codes + row * to.ld + col, v, coding.inverse);
    }
    if (threadIdx.x == 0) to.scales[row] = coding.scale;
}

template <class T, int threads, int passes>
cudaError_t launch_held(cudaStream_t stream, const Matrix& x, const float* column_scales,
                        const Fp8Codes& to) {
    held_rows_kernel<T, threads, passes>
        <<<static_cast<unsigned>(x.rows), threads, 0, stream>>>(x, column_scales, to);
    return cudaGetLastError();
}

template <class T, int passes>
cudaError_t launch_warps(cudaStream_t stream, const Matrix& x, const float* column_scales,
                         const Fp8Codes& to) {
    warp_rows_kernel<T, passes>
        <<<static_cast<unsigned>(pieces(x.rows, block_threads / 32)), block_threads, 0, stream>>>(
            x, column_scales, to);
    return cudaGetLastError();
}

template <class T>
cudaError_t launch_rows(cudaStream_t stream, const Matrix& x, const float* column_scales,
                        const Fp8Codes& to) {
    const bool is_wide = all_wide({&x}) && takes_wide_codes(to, column_scales);
    constexpr std::int64_t pass = block_threads * wide;
    constexpr std::int64_t of_warp = 32 * wide;
    if (is_wide && x.cols <= 4 * of_warp) return launch_warps<T, 4>(stream, x, column_scales, to);
    if (is_wide && x.cols <= 8 * of_warp) return launch_warps<T, 8>(stream, x, column_scales, to);
    if (is_wide && x.cols <= 2 * pass) {
        return launch_held<T, block_threads, 2>(stream, x, column_scales, to);
    }
    if (is_wide && x.cols <= 4 * pass) {
        return launch_held<T, block_threads, 4>(stream, x, column_scales, to);
    }
    if (is_wide && x.cols <= 8 * pass) {
        return launch_held<T, block_threads, 8>(stream, x, column_scales, to);
    }
    if (is_wide && x.cols <= 16 * pass) {
        return launch_held<T, 2 * block_threads, 8>(stream, x, column_scales, to);
    }
    any_rows_kernel<T>
        <<<static_cast<unsigned>(x.rows), block_threads, 0, stream>>>(x, column_scales, to);
    return cudaGetLastError();
}

constexpr int tile = 64;
constexpr int tile_rows_at_once = 16;

__global__ void __launch_bounds__(tile* tile_rows_at_once / 4)
    transpose_kernel(Fp8Codes from, Fp8Codes to) {
    __shared__ std::uint8_t held[tile][tile + 4];
    const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * tile;
    const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.x) * tile;
    for (int i = static_cast<int>(threadIdx.x); i < tile * tile;
         i += static_cast<int>(blockDim.x)) {
        const int row = i / tile;
        const int col = i % tile;
        if (first_row + row < from.rows && first_col + col < from.cols) {
            held[row][col] = from.codes[(first_row + row) * from.ld + first_col + col];
        }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < tile * tile;
         i += static_cast<int>(blockDim.x)) {
        const int row = i % tile;
        const int col = i / tile;
        if (first_row + row < from.rows && first_col + col < from.cols) {
            to.codes[(first_col + col) * to.ld + first_row + row] = held[row][col];
        }
    }
}

}  // namespace

cudaError_t quantize_rows(cudaStream_t stream, const Matrix& x, const float* column_scales,
                          const Fp8Codes& to) {
    if (x.rows == 0) return cudaSuccess;
    return with_type(x.type, [&](auto element) {
        return launch_rows<decltype(element)>(stream, x, column_scales, to);
    });
}

cudaError_t transpose_codes(cudaStream_t stream, const Fp8Codes& from, const Fp8Codes& to) {
    if (from.rows == 0 || from.cols == 0) return cudaSuccess;
    const dim3 grid(static_cast<unsigned>((from.cols + tile - 1) / tile),
                    static_cast<unsigned>((from.rows + tile - 1) / tile));
    transpose_kernel<<<grid, tile * tile_rows_at_once / 4, 0, stream>>>(from, to);
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
