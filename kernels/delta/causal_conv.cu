#include "delta.h"
#include "kernels/gate.cuh"
#include "kernels/launch.cuh"

/// Causal depthwise convolution and SiLU: a thread goes down `run` rows of N columns with the last
/// rows of x in registers.

namespace loratrain::kernels {

namespace {

constexpr int run = 16;

/// A convolution of `taps` >= width: the taps before its own are 0.
template <class T, int N, int taps>
struct Taps {
    float w[taps][N];
    float x[taps][N];  ///< rows t - taps + 1 to t

    __device__ Taps(const CausalConvParams& p, std::int64_t col) : x{} {
        const T* weight = static_cast<const T*>(p.weight) + col * p.width;
#pragma unroll
        for (int j = 0; j < taps; ++j) {
            const int own = j - (taps - p.width);
#pragma unroll
            for (int i = 0; i < N; ++i) {
                w[j][i] = own < 0 ? 0.0F : to_float(weight[i * p.width + own]);
            }
        }
    }
    /// Takes the rows before row `begin`, as far as they are in its sample.
    __device__ void begin_at(const CausalConvParams& p, std::int64_t begin, std::int64_t col) {
        const std::int32_t position = p.rows.positions[begin];
#pragma unroll
        for (int back = 1; back < taps; ++back) {
            if (position >= back) load<N>(row_of(p.x, begin - back) + col, x[taps - back]);
        }
    }
    /// Goes on to row t.
    __device__ void step(const CausalConvParams& p, std::int64_t t, std::int64_t col) {
#pragma unroll
        for (int j = 0; j + 1 < taps; ++j) {
#pragma unroll
            for (int i = 0; i < N; ++i) x[j][i] = x[j + 1][i];
        }
        if (p.rows.positions[t] == 0) {
#pragma unroll
            for (int j = 0; j + 1 < taps; ++j) {
#pragma unroll
                for (int i = 0; i < N; ++i) x[j][i] = 0.0F;
            }
        }
        load<N>(row_of(p.x, t) + col, x[taps - 1]);
    }
    __device__ float sum(int i) const {
        float total = 0.0F;
#pragma unroll
        for (int j = 0; j < taps; ++j) total += w[j][i] * x[j][i];
        return total;
    }
    static __device__ T* row_of(const Matrix& matrix, std::int64_t row) {
        return static_cast<T*>(matrix.data) + row * matrix.ld;
    }
};

/// First row and column of a thread; false: it has none.
template <int N>
__device__ __forceinline__ bool find_run(const CausalConvParams& p, std::int64_t& begin,
                                         std::int64_t& col) {
    col = (std::int64_t{blockIdx.x} * block_threads + threadIdx.x) * N;
    begin = std::int64_t{blockIdx.y} * run;
    return col < p.x.cols;
}

template <class T, int N, int taps>
__global__ void __launch_bounds__(block_threads)
    conv_kernel(const __grid_constant__ CausalConvParams p) {
    wait_for_kernel_before();
    std::int64_t begin;
    std::int64_t col;
    if (!find_run<N>(p, begin, col)) return;
    Taps<T, N, taps> window(p, col);
    window.begin_at(p, begin, col);
    const std::int64_t end = min(begin + run, p.rows.tokens);
#pragma unroll 4
    for (std::int64_t t = begin; t < end; ++t) {
        window.step(p, t, col);
        float y[N];
#pragma unroll
        for (int i = 0; i < N; ++i) y[i] = Silu::value<T>(window.sum(i));
        store<N>(window.row_of(p.y, t) + col, y);
    }
}

/// Row t adds to the gradients of x of the taps - 1 rows before it, which are complete behind it.
template <class T, int N, int taps>
__global__ void __launch_bounds__(block_threads)
    conv_backward_kernel(const __grid_constant__ CausalConvParams p, Matrix dy, Matrix dx) {
    wait_for_kernel_before();
    std::int64_t begin;
    std::int64_t col;
    if (!find_run<N>(p, begin, col)) return;
    Taps<T, N, taps> window(p, col);
    window.begin_at(p, begin, col);
    const std::int64_t end = min(begin + run, p.rows.tokens);
    float sums[taps][N] = {};  // of rows t - taps + 1 to t
#pragma unroll 4
    for (std::int64_t t = begin; t < end + taps - 1; ++t) {
#pragma unroll
        for (int j = 0; j + 1 < taps; ++j) {
#pragma unroll
            for (int i = 0; i < N; ++i) sums[j][i] = sums[j + 1][i];
        }
#pragma unroll
        for (int i = 0; i < N; ++i) sums[taps - 1][i] = 0.0F;
        if (t < p.rows.tokens) {
            window.step(p, t, col);
            const std::int32_t position = p.rows.positions[t];
            float d[N];
            load<N>(window.row_of(dy, t) + col, d);
#pragma unroll
            for (int i = 0; i < N; ++i) {
                float value = 0.0F;
                d[i] = Silu::gradient<T>(window.sum(i), d[i], value);
            }
#pragma unroll
            for (int j = 0; j < taps; ++j) {
                if (position < taps - 1 - j) continue;
#pragma unroll
                for (int i = 0; i < N; ++i) sums[j][i] += window.w[j][i] * d[i];
            }
        }
        const std::int64_t done = t - (taps - 1);
        if (done >= begin) store<N>(window.row_of(dx, done) + col, sums[0]);
    }
}

/// Calls launch(element, columns of a thread, taps, grid).
template <class Launch>
cudaError_t with_taps(const CausalConvParams& p, bool is_wide, const Launch& launch) {
    if (p.x.rows == 0 || p.x.cols == 0) return cudaSuccess;
    if (p.width < 1 || p.width > most_conv_width) return cudaErrorInvalidValue;
    const auto grid = [&](int columns) {
        return dim3(static_cast<unsigned>(pieces(p.x.cols, block_threads * columns)),
                    static_cast<unsigned>(pieces(p.x.rows, run)));
    };
    return with_type(p.x.type, [&](auto element) {
        using T = decltype(element);
        if (p.width <= 4 && is_wide) {
            return launch(element, std::integral_constant<int, wide>{},
                          std::integral_constant<int, 4>{}, grid(wide));
        }
        return launch(T{}, std::integral_constant<int, 1>{},
                      std::integral_constant<int, most_conv_width>{}, grid(1));
    });
}

}  // namespace

cudaError_t causal_conv(cudaStream_t stream, const CausalConvParams& p) {
    return with_taps(p, all_wide({&p.x, &p.y}), [&](auto element, auto n, auto taps, dim3 grid) {
        return launch_early(stream, conv_kernel<decltype(element), n(), taps()>, grid,
                            block_threads, 0, p);
    });
}

cudaError_t causal_conv_backward(cudaStream_t stream, const CausalConvParams& p, const Matrix& dy,
                                 const Matrix& dx) {
    return with_taps(
        p, all_wide({&p.x, &dy, &dx}), [&](auto element, auto n, auto taps, dim3 grid) {
            return launch_early(stream, conv_backward_kernel<decltype(element), n(), taps()>, grid,
                                block_threads, 0, p, dy, dx);
        });
}

}  // namespace loratrain::kernels
