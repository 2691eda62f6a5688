#include "delta.h"
#include "kernels/gate.cuh"
#include "kernels/launch.cuh"

/// Causal depthwise convolution and SiLU: a thread goes down `run` rows of N columns with the last
/// rows of x in registers, and loads some rows before it uses the first of them.

namespace loratrain::kernels {

namespace {

constexpr int run = 32;
constexpr unsigned conv_threads = 128;

/// N elements as they lie in memory.
template <class T, int N>
struct Piece {
    static constexpr int words = N * static_cast<int>(sizeof(T)) / 16;
    uint4 word[words];

    __device__ __forceinline__ void load_from(const T* x) {
#pragma unroll
        for (int i = 0; i < words; ++i) word[i] = reinterpret_cast<const uint4*>(x)[i];
    }
    __device__ __forceinline__ void values(float (&v)[N]) const {
        load<N>(reinterpret_cast<const T*>(word), v);
    }
};
template <class T>
struct Piece<T, 1> {
    T element;

    __device__ __forceinline__ void load_from(const T* x) { element = *x; }
    __device__ __forceinline__ void values(float (&v)[1]) const { v[0] = to_float(element); }
};

/// A convolution of `taps` >= width: the taps before its own are 0.
template <class T, int N, int taps>
struct Taps {
    float w[taps][N];
    float x[taps][N];  ///< rows t - taps + 1 to t

    /// Takes the weights, and the rows before row `begin`, as far as they are in its sample.
    __device__ __forceinline__ Taps(const CausalConvParams& p, std::int64_t begin, std::int64_t col)
        : x{} {
        const T* weight = static_cast<const T*>(p.weight) + col * p.width;
        if (N == wide && p.width == taps) {
#pragma unroll
            for (int part = 0; part < taps; ++part) {
                float all[N];
                load<N>(weight + part * N, all);
#pragma unroll
                for (int i = 0; i < N; ++i)
                    w[(part * N + i) % taps][(part * N + i) / taps] = all[i];
            }
        } else {
#pragma unroll
            for (int j = 0; j < taps; ++j) {
                const int own = j - (taps - p.width);
#pragma unroll
                for (int i = 0; i < N; ++i) {
                    w[j][i] = own < 0 ? 0.0F : to_float(weight[i * p.width + own]);
                }
            }
        }
        const std::int32_t position = p.rows.positions[begin];
#pragma unroll
        for (int back = 1; back < taps; ++back) {
            if (begin < back) continue;
            load<N>(row_of(p.x, begin - back) + col, x[taps - back]);
#pragma unroll
            for (int i = 0; i < N; ++i) {
                if (position < back) x[taps - back][i] = 0.0F;
            }
        }
    }
    /// Goes on to a row, which may begin a sample.
    __device__ __forceinline__ void step(const Piece<T, N>& row, bool begins) {
#pragma unroll
        for (int j = 0; j + 1 < taps; ++j) {
#pragma unroll
            for (int i = 0; i < N; ++i) x[j][i] = begins ? 0.0F : x[j + 1][i];
        }
        row.values(x[taps - 1]);
    }
    __device__ __forceinline__ float sum(int i) const {
        float total = 0.0F;
#pragma unroll
        for (int j = 0; j < taps; ++j) total += w[j][i] * x[j][i];
        return total;
    }
    static __device__ __forceinline__ T* row_of(const Matrix& matrix, std::int64_t row) {
        return static_cast<T*>(matrix.data) + row * matrix.ld;
    }
};

/// First row and column of a thread; false: it has none.
template <int N>
__device__ __forceinline__ bool find_run(const CausalConvParams& p, std::int64_t& begin,
                                         std::int64_t& col) {
    col = (std::int64_t{blockIdx.x} * conv_threads + threadIdx.x) * N;
    begin = std::int64_t{blockIdx.y} * run;
    return col < p.x.cols;
}

/// True if no sample begins behind row `begin` up to row `last`, for all threads of a block.
__device__ __forceinline__ bool is_one_sample(const CausalConvParams& p, std::int64_t begin,
                                              std::int64_t last) {
    return p.rows.positions[last] >= last - begin;
}

template <bool one_sample, class T, int N, int taps>
__device__ __forceinline__ void convolve(const CausalConvParams& p, Taps<T, N, taps>& window,
                                         std::int64_t begin, std::int64_t end, std::int64_t col) {
    constexpr int ahead = 8;
    for (std::int64_t t = begin; t < end; t += ahead) {
        Piece<T, N> rows[ahead];
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            if (t + i < end) rows[i].load_from(window.row_of(p.x, t + i) + col);
        }
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            if (t + i >= end) return;
            window.step(rows[i], !one_sample && p.rows.positions[t + i] == 0);
            float y[N];
#pragma unroll
            for (int c = 0; c < N; ++c) y[c] = Silu::value<T>(window.sum(c));
            store<N>(window.row_of(p.y, t + i) + col, y);
        }
    }
}

template <class T, int N, int taps>
__global__ void __launch_bounds__(conv_threads)
    conv_kernel(const __grid_constant__ CausalConvParams p) {
    wait_for_kernel_before();
    std::int64_t begin;
    std::int64_t col;
    if (!find_run<N>(p, begin, col)) return;
    const std::int64_t end = min(begin + run, p.rows.tokens);
    Taps<T, N, taps> window(p, begin, col);
    if (is_one_sample(p, begin, end - 1)) {
        convolve<true>(p, window, begin, end, col);
    } else {
        convolve<false>(p, window, begin, end, col);
    }
}

/// Row t adds to the gradients of x of the taps - 1 rows before it, which are complete behind it;
/// rows up to `last` have a part in those of the run.
template <bool one_sample, class T, int N, int taps>
__device__ __forceinline__ void convolve_back(const CausalConvParams& p, const Matrix& dy,
                                              const Matrix& dx, Taps<T, N, taps>& window,
                                              std::int64_t begin, std::int64_t end,
                                              std::int64_t last, std::int64_t col) {
    constexpr int ahead = 4;
    float sums[taps][N] = {};  // of rows t - taps + 1 to t
    for (std::int64_t t = begin; t < end + taps - 1; t += ahead) {
        Piece<T, N> rows[ahead];
        Piece<T, N> gradients[ahead];
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            if (t + i > last) continue;
            rows[i].load_from(window.row_of(p.x, t + i) + col);
            gradients[i].load_from(window.row_of(dy, t + i) + col);
        }
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            if (t + i >= end + taps - 1) return;
#pragma unroll
            for (int j = 0; j < taps; ++j) {
#pragma unroll
                for (int c = 0; c < N; ++c) sums[j][c] = j + 1 < taps ? sums[j + 1][c] : 0.0F;
            }
            if (t + i <= last) {
                const std::int32_t position = one_sample ? taps : p.rows.positions[t + i];
                window.step(rows[i], position == 0);
                float d[N];
                gradients[i].values(d);
#pragma unroll
                for (int c = 0; c < N; ++c) {
                    float value = 0.0F;
                    d[c] = Silu::gradient<T>(window.sum(c), d[c], value);
                }
#pragma unroll
                for (int j = 0; j < taps; ++j) {
                    if (position < taps - 1 - j) continue;
#pragma unroll
                    for (int c = 0; c < N; ++c) sums[j][c] += window.w[j][c] * d[c];
                }
            }
            const std::int64_t done = t + i - (taps - 1);
            if (done >= begin) store<N>(window.row_of(dx, done) + col, sums[0]);
        }
    }
}

template <class T, int N, int taps>
__global__ void __launch_bounds__(conv_threads)
    conv_backward_kernel(const __grid_constant__ CausalConvParams p, Matrix dy, Matrix dx) {
    wait_for_kernel_before();
    std::int64_t begin;
    std::int64_t col;
    if (!find_run<N>(p, begin, col)) return;
    const std::int64_t end = min(begin + run, p.rows.tokens);
    const std::int64_t last = min(end + taps - 1, p.rows.tokens) - 1;
    Taps<T, N, taps> window(p, begin, col);
    if (is_one_sample(p, begin, last)) {
        convolve_back<true>(p, dy, dx, window, begin, end, last, col);
    } else {
        convolve_back<false>(p, dy, dx, window, begin, end, last, col);
    }
}

/// Calls launch(element, columns of a thread, taps, grid).
template <class Launch>
cudaError_t with_taps(const CausalConvParams& p, bool is_wide, const Launch& launch) {
    if (p.x.rows == 0 || p.x.cols == 0) return cudaSuccess;
    if (p.width < 1 || p.width > most_conv_width) return cudaErrorInvalidValue;
    const auto grid = [&](int columns) {
        return dim3(static_cast<unsigned>(pieces(p.x.cols, conv_threads * columns)),
                    static_cast<unsigned>(pieces(p.x.rows, run)));
    };
    return with_type(p.x.type, [&](auto element) {
        using T = decltype(element);
        if (p.width <= 4 && is_wide && aligned_16(p.weight)) {
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
        return launch_early(stream, conv_kernel<decltype(element), n(), taps()>, grid, conv_threads,
                            0, p);
    });
}

cudaError_t causal_conv_backward(cudaStream_t stream, const CausalConvParams& p, const Matrix& dy,
                                 const Matrix& dx) {
    return with_taps(
        p, all_wide({&p.x, &dy, &dx}), [&](auto element, auto n, auto taps, dim3 grid) {
            return launch_early(stream, conv_backward_kernel<decltype(element), n(), taps()>, grid,
                                conv_threads, 0, p, dy, dx);
        });
}

}  // namespace loratrain::kernels
