#include <algorithm>
#include <type_traits>

#include "delta.h"
#include "kernels/gate.cuh"
#include "kernels/launch.cuh"
#include "kernels/stored_columns.cuh"

/// Causal depthwise convolution and SiLU: a thread goes down a run of rows of N columns with the
/// last rows of x in registers, and loads the next `ahead` rows before it computes with those it
/// has. Runs are as long as lets all blocks run at once.

namespace loratrain::kernels {

namespace {

constexpr unsigned conv_threads = 128;
constexpr int ahead = 4;
constexpr std::int64_t least_run = 32;

/// A thread's N columns of a matrix.
template <class T, int N>
struct Columns {
    T* first;
    std::int32_t ld;

    __device__ __forceinline__ Columns(const Matrix& matrix, std::int64_t col)
        : first(static_cast<T*>(matrix.data) + col), ld(static_cast<std::int32_t>(matrix.ld)) {}
    __device__ __forceinline__ void load(std::int32_t row, StoredColumns<T, N>& columns) const {
        columns.take(first + std::int64_t{row} * ld);
    }
    __device__ __forceinline__ void store(std::int32_t row, const float (&v)[N]) const {
        StoredColumns<T, N> columns;
        columns.round(v);
        columns.give(first + std::int64_t{row} * ld);
    }
};

/// A convolution of `taps` >= width: the taps before its own are 0.
template <class T, int N, int taps>
struct Taps {
    float w[taps][N];
    float x[taps][N];  ///< rows t - taps + 1 to t

    /// Takes the weights, and the rows before row `begin`, as far as they are in its sample.
    __device__ __forceinline__ Taps(const CausalConvParams& p, const Columns<T, N>& rows,
                                    std::int32_t begin, std::int64_t col)
        : x{} {
        const T* weight = static_cast<const T*>(p.weight) + col * p.width;
#pragma unroll
        for (int j = 0; j < taps; ++j) {
            const int own = j - (taps - p.width);
#pragma unroll
            for (int i = 0; i < N; ++i) {
                w[j][i] = own < 0 ? 0.0F : to_float(weight[i * p.width + own]);
            }
        }
        const std::int32_t position = p.rows.positions[begin];
#pragma unroll
        for (int back = 1; back < taps; ++back) {
            if (begin < back || position < back) continue;
            StoredColumns<T, N> row;
            rows.load(begin - back, row);
            row.values(x[taps - back]);
        }
    }
    /// Goes on to a row, which may begin a sample.
    __device__ __forceinline__ void step(const StoredColumns<T, N>& row, bool begins) {
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
};

/// First column and rows of a thread.
template <int N>
struct Run {
    std::int64_t col;
    std::int32_t begin;
    std::int32_t end;

    __device__ __forceinline__ Run(const CausalConvParams& p, std::int32_t rows)
        : col((std::int64_t{blockIdx.x} * conv_threads + threadIdx.x) * N),
          begin(static_cast<std::int32_t>(blockIdx.y) * rows),
          end(min(begin + rows, static_cast<std::int32_t>(p.rows.tokens))) {}
    __device__ __forceinline__ bool is_empty(const CausalConvParams& p) const {
        return col >= p.x.cols;
    }
};

/// Calls take(row, what load(row) loaded, position) for rows begin to end - 1. `position`: that of
/// the row in its sample, or for `ahead` rows that all have taps - 1 rows of their sample before
/// them the constant `taps`, so that nothing is to be asked of each.
template <int taps, class Loaded, class Load, class Take>
__device__ __forceinline__ void for_each_row(const std::int32_t* positions, std::int32_t begin,
                                             std::int32_t end, const Load& load, const Take& take) {
    Loaded next[ahead];
    std::int32_t next_position = 0;  // of the last of them
    const auto load_rows = [&](std::int32_t first) {
        if (first + ahead > end) return;
#pragma unroll
        for (int i = 0; i < ahead; ++i) next[i] = load(first + i);
        next_position = positions[first + ahead - 1];
    };
    load_rows(begin);
    std::int32_t t = begin;
    for (; t + ahead <= end; t += ahead) {
        Loaded rows[ahead];
#pragma unroll
        for (int i = 0; i < ahead; ++i) rows[i] = next[i];
        const bool inside = next_position >= ahead + taps - 2;
        load_rows(t + ahead);
        if (inside) {
#pragma unroll
            for (int i = 0; i < ahead; ++i) take(t + i, rows[i], taps);
        } else {
#pragma unroll
            for (int i = 0; i < ahead; ++i) take(t + i, rows[i], positions[t + i]);
        }
    }
#pragma unroll 1
    for (; t < end; ++t) take(t, load(t), positions[t]);
}

template <class T, int N, int taps>
__global__ void __launch_bounds__(conv_threads)
    conv_kernel(const __grid_constant__ CausalConvParams p, std::int32_t run_rows) {
    wait_for_kernel_before();
    const Run<N> run(p, run_rows);
    if (run.is_empty(p)) return;
    const Columns<T, N> x(p.x, run.col);
    const Columns<T, N> y(p.y, run.col);
    using Row = StoredColumns<T, N>;
    Taps<T, N, taps> window(p, x, run.begin, run.col);
    const auto load = [&](std::int32_t t) {
        Row row;
        x.load(t, row);
        return row;
    };
    for_each_row<taps, Row>(p.rows.positions, run.begin, run.end, load,
                            [&](std::int32_t t, const Row& row, std::int32_t position) {
                                window.step(row, position == 0);
                                float made[N];
#pragma unroll
                                for (int c = 0; c < N; ++c) {
                                    made[c] = Silu::value<T>(window.sum(c));
                                }
                                y.store(t, made);
                            });
}

/// Gradients of x of the last rows: row t adds to those of the taps - 1 rows before it, which are
/// complete behind it.
template <class T, int N, int taps>
struct TapGradients {
    float sums[taps][N] = {};  ///< of rows t - taps + 1 to t

    __device__ __forceinline__ void step() {
#pragma unroll
        for (int j = 0; j < taps; ++j) {
#pragma unroll
            for (int c = 0; c < N; ++c) sums[j][c] = j + 1 < taps ? sums[j + 1][c] : 0.0F;
        }
    }
    /// `position`: of row t in its sample.
    __device__ __forceinline__ void add(const Taps<T, N, taps>& window,
                                        const StoredColumns<T, N>& gradient,
                                        std::int32_t position) {
        float d[N];
        gradient.values(d);
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
};

/// Rows behind a run have a part in the gradients of its last ones.
template <class T, int N, int taps>
__global__ void __launch_bounds__(conv_threads)
    conv_backward_kernel(const __grid_constant__ CausalConvParams p, Matrix dy, Matrix dx,
                         std::int32_t run_rows) {
    wait_for_kernel_before();
    const Run<N> run(p, run_rows);
    if (run.is_empty(p)) return;
    const std::int32_t behind = min(run.end + taps - 1, static_cast<std::int32_t>(p.rows.tokens));
    const Columns<T, N> x(p.x, run.col);
    const Columns<T, N> of_y(dy, run.col);
    const Columns<T, N> of_x(dx, run.col);
    struct Row {
        StoredColumns<T, N> x;
        StoredColumns<T, N> gradient;
    };
    Taps<T, N, taps> window(p, x, run.begin, run.col);
    TapGradients<T, N, taps> gradients;
    const auto load = [&](std::int32_t t) {
        Row row;
        x.load(t, row.x);
        of_y.load(t, row.gradient);
        return row;
    };
    const auto store_done = [&](std::int32_t t) {
        const std::int32_t done = t - (taps - 1);
        if (done >= run.begin) of_x.store(done, gradients.sums[0]);
    };
    for_each_row<taps, Row>(p.rows.positions, run.begin, behind, load,
                            [&](std::int32_t t, const Row& row, std::int32_t position) {
                                gradients.step();
                                window.step(row.x, position == 0);
                                gradients.add(window, row.gradient, position);
                                store_done(t);
                            });
#pragma unroll 1
    for (std::int32_t t = behind; t < run.end + taps - 1; ++t) {
        gradients.step();
        store_done(t);
    }
}

/// A kernel's grid with runs of `rows`.
struct RunShape {
    dim3 grid;
    std::int32_t rows;
};

/// Runs with which all blocks run at once, if they have least_run rows then; with the rows `behind`
/// them that they read, they are multiples of `ahead`.
template <auto kernel>
RunShape runs_of(const CausalConvParams& p, int columns, int behind) {
    static const std::int64_t at_once = [] {
        int of_processor = 0;
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_processor, kernel, conv_threads, 0);
        return std::int64_t{count_processors()} * of_processor;
    }();
    const std::int64_t across = pieces(p.x.cols, conv_threads * columns);
    const std::int64_t runs = std::max(at_once / across, std::int64_t{1});
    const std::int64_t least = std::max<std::int64_t>(least_run, pieces(p.x.rows, runs));
    const std::int64_t rows = std::int64_t{pieces(least + behind, ahead)} * ahead - behind;
    return {dim3(static_cast<unsigned>(across), static_cast<unsigned>(pieces(p.x.rows, rows))),
            static_cast<std::int32_t>(rows)};
}

/// Calls launch(element, columns of a thread, taps); `columns`: where rows lie for wide loads.
template <int columns, class Launch>
cudaError_t with_taps(const CausalConvParams& p, bool is_wide, const Launch& launch) {
    if (p.x.rows == 0 || p.x.cols == 0) return cudaSuccess;
    if (p.width < 1 || p.width > most_conv_width) return cudaErrorInvalidValue;
    return with_type(p.x.type, [&](auto element) {
        if (p.width <= 4 && is_wide) {
            return launch(element, std::integral_constant<int, columns>{},
                          std::integral_constant<int, 4>{});
        }
        return launch(element, std::integral_constant<int, 1>{},
                      std::integral_constant<int, most_conv_width>{});
    });
}

}  // namespace

cudaError_t causal_conv(cudaStream_t stream, const CausalConvParams& p) {
    return with_taps<wide>(p, all_wide({&p.x, &p.y}), [&](auto element, auto n, auto taps) {
        constexpr auto kernel = conv_kernel<decltype(element), n(), taps()>;
        const RunShape runs = runs_of<kernel>(p, n(), 0);
        return launch_early(stream, kernel, runs.grid, conv_threads, 0, p, runs.rows);
    });
}

cudaError_t causal_conv_backward(cudaStream_t stream, const CausalConvParams& p, const Matrix& dy,
                                 const Matrix& dx) {
    return with_taps<wide / 2>(p, all_wide({&p.x, &dy, &dx}), [&](auto element, auto n, auto taps) {
        constexpr auto kernel = conv_backward_kernel<decltype(element), n(), taps()>;
        const RunShape runs = runs_of<kernel>(p, n(), taps() - 1);
        return launch_early(stream, kernel, runs.grid, conv_threads, 0, p, dy, dx, runs.rows);
    });
}

}  // namespace loratrain::kernels
