#include "cached_delta.h"
#include "kernels/gate.cuh"
#include "kernels/launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr int taps = most_conv_width;
constexpr int ahead = 8;  ///< rows that are loaded at once

template <class T>
__device__ __forceinline__ T* element(const Matrix& x, std::int64_t row, std::int64_t col) {
    return static_cast<T*>(x.data) + row * x.ld + col;
}

/// A thread goes down the rows of a sample in a column, with the last rows of x in registers. The
/// taps before the convolution's own are 0.
template <class T>
__global__ void __launch_bounds__(block_threads)
    cached_conv_kernel(const __grid_constant__ CausalConvParams p, Matrix kept) {
    wait_for_kernel_before();
    const std::int64_t col = std::int64_t{blockIdx.x} * block_threads + threadIdx.x;
    const std::int64_t begin = p.rows.offsets[blockIdx.y];
    const std::int64_t end = p.rows.offsets[blockIdx.y + 1];
    if (col >= p.x.cols || begin == end) return;
    const int kept_rows = p.width - 1;
    const std::int64_t first_kept = std::int64_t{blockIdx.y} * kept_rows;
    const std::int32_t position = p.rows.positions[begin];
    float w[taps];
    float x[taps] = {};  // of rows t - taps + 1 to t
#pragma unroll
    for (int j = 0; j < taps; ++j) {
        const int own = j - (taps - p.width);
        w[j] = own < 0 ? 0.0F : to_float(static_cast<const T*>(p.weight)[col * p.width + own]);
    }
#pragma unroll
    for (int back = 1; back < taps; ++back) {
        if (back > kept_rows || back > position) continue;
        x[taps - back] = to_float(*element<T>(kept, first_kept + kept_rows - back, col));
    }
    const T* from = element<T>(p.x, begin, col);
    T* to = element<T>(p.y, begin, col);
    for (std::int64_t left = end - begin; left > 0; left -= ahead) {
        T next[ahead];
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            if (i < left) next[i] = *from;
            from += p.x.ld;
        }
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            if (i >= left) break;
#pragma unroll
            for (int j = 0; j + 1 < taps; ++j) x[j] = x[j + 1];
            x[taps - 1] = to_float(next[i]);
            float sum = 0.0F;
#pragma unroll
            for (int j = 0; j < taps; ++j) sum += w[j] * x[j];
            *to = from_float<T>(Silu::value<T>(sum));
            to += p.y.ld;
        }
    }
#pragma unroll
    for (int back = 1; back < taps; ++back) {
        if (back > kept_rows) continue;
        *element<T>(kept, first_kept + kept_rows - back, col) = from_float<T>(x[taps - back]);
    }
}

}  // namespace

cudaError_t cached_conv(cudaStream_t stream, const CausalConvParams& p, const Matrix& kept) {
    if (p.x.rows == 0 || p.x.cols == 0) return cudaSuccess;
    if (p.width < 1 || p.width > most_conv_width) return cudaErrorInvalidValue;
    const dim3 grid(static_cast<unsigned>(pieces(p.x.cols, block_threads)),
                    static_cast<unsigned>(p.rows.samples));
    return with_type(p.x.type, [&](auto type) {
        return launch_early(stream, cached_conv_kernel<decltype(type)>, grid, block_threads, 0, p,
                            kept);
    });
}

}  // namespace loratrain::kernels
