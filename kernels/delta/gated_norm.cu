#include <type_traits>

#include "delta.h"
#include "kernels/gate.cuh"
#include "kernels/launch.cuh"

/// RMS norm of each head times SiLU of a gate: some lanes of a warp have a head of a row, with N
/// columns each at a time. Where that is the whole head (`held`), what a lane loads stays in
/// registers; else it is loaded again behind the sums.

namespace loratrain::kernels {

namespace {

template <int N>
constexpr int lanes_of_head = N == wide ? 16 : 32;

/// Sum over the lanes of a head.
template <int lanes>
__device__ __forceinline__ float sum_of_lanes(float value) {
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffU, value, step);
    }
    return value;
}

/// A thread's row and first column; lanes beyond the rows have row -1.
template <int N, bool held>
struct HeadPlace {
    std::int64_t row = -1;
    std::int64_t column = 0;
    int width;
    int begin;  ///< of the thread, in the head

    __device__ explicit HeadPlace(const GatedNormParams& p)
        : width(static_cast<int>(p.o.cols / p.heads)),
          begin(static_cast<int>(threadIdx.x) % lanes_of_head<N> * N) {
        const std::int64_t at =
            (std::int64_t{blockIdx.x} * block_threads + threadIdx.x) / lanes_of_head<N>;
        if (at >= p.o.rows * p.heads) return;
        row = at / p.heads;
        column = at % p.heads * width;
    }
    /// Calls f(column of the matrix, column of the head) for the thread's columns.
    template <class F>
    __device__ void for_each(const F& f) const {
        if (row < 0) return;
        if constexpr (held) {
            if (begin < width) f(column + begin, begin);
        } else {
            for (int i = begin; i < width; i += lanes_of_head<N> * N) f(column + i, i);
        }
    }
    template <class T>
    __device__ T* at(const Matrix& x, std::int64_t col) const {
        return static_cast<T*>(x.data) + row * x.ld + col;
    }
};

template <class T, int N, bool held>
__global__ void __launch_bounds__(block_threads)
    gated_norm_kernel(const __grid_constant__ GatedNormParams p) {
    wait_for_kernel_before();
    const HeadPlace<N, held> place(p);
    float o[N];
    float z[N];
    float w[N];
    const auto load_all = [&](std::int64_t col, int of_head) {
        load<N>(place.template at<T>(p.o, col), o);
        load<N>(place.template at<T>(p.z, col), z);
        load<N>(static_cast<const T*>(p.weight) + of_head, w);
    };
    float sum = 0.0F;
    place.for_each([&](std::int64_t col, int of_head) {
        load_all(col, of_head);
#pragma unroll
        for (int i = 0; i < N; ++i) sum += o[i] * o[i];
    });
    sum = sum_of_lanes<lanes_of_head<N>>(sum);
    const float factor = 1.0F / sqrtf(sum / static_cast<float>(place.width) + p.eps);
    place.for_each([&](std::int64_t col, int of_head) {
        if (!held) load_all(col, of_head);
#pragma unroll
        for (int i = 0; i < N; ++i) o[i] *= factor * w[i] * Silu::value<T>(z[i]);
        store<N>(place.template at<T>(p.y, col), o);
    });
}

template <class T, int N, bool held>
__global__ void __launch_bounds__(block_threads, held ? 4 : 2)
    gated_norm_backward_kernel(const __grid_constant__ GatedNormBackwardParams params) {
    wait_for_kernel_before();
    const GatedNormParams& p = params.forward;
    const HeadPlace<N, held> place(p);
    float o[N];
    float d[N];
    float w[N];
    float gate[N];
    float slope[N];
    const auto load_all = [&](std::int64_t col, int of_head) {
        float z[N];
        load<N>(place.template at<T>(p.o, col), o);
        load<N>(place.template at<T>(p.z, col), z);
        load<N>(place.template at<T>(params.dy, col), d);
        load<N>(static_cast<const T*>(p.weight) + of_head, w);
#pragma unroll
        for (int i = 0; i < N; ++i) slope[i] = Silu::gradient<T>(z[i], 1.0F, gate[i]);
    };
    float squares = 0.0F;
    float products = 0.0F;
    place.for_each([&](std::int64_t col, int of_head) {
        load_all(col, of_head);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            squares += o[i] * o[i];
            products += o[i] * d[i] * w[i] * gate[i];
        }
    });
    squares = sum_of_lanes<lanes_of_head<N>>(squares);
    products = sum_of_lanes<lanes_of_head<N>>(products);
    const auto width = static_cast<float>(place.width);
    const float factor = 1.0F / sqrtf(squares / width + p.eps);
    const float along = factor * factor * products / width;
    place.for_each([&](std::int64_t col, int of_head) {
        if (!held) load_all(col, of_head);
        float y[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
            y[i] = o[i] * (factor * w[i] * gate[i]);
            slope[i] *= d[i] * (factor * o[i] * w[i]);
            o[i] = factor * (d[i] * w[i] * gate[i] - o[i] * along);
        }
        if (p.y.data != nullptr) store<N>(place.template at<T>(p.y, col), y);
        store<N>(place.template at<T>(params.d_o, col), o);
        store<N>(place.template at<T>(params.d_z, col), slope);
    });
}

template <int N>
unsigned blocks_of(const GatedNormParams& p) {
    return static_cast<unsigned>(pieces(p.o.rows * p.heads * lanes_of_head<N>, block_threads));
}

/// Calls launch(element, columns of a lane, whether a head is held); is_wide: of rows.
template <class Launch>
cudaError_t with_columns(const GatedNormParams& p, bool is_wide, const Launch& launch) {
    if (p.o.rows == 0 || p.o.cols == 0) return cudaSuccess;
    const std::int64_t width = p.o.cols / p.heads;
    return with_type(p.o.type, [&](auto element) {
        const auto with = [&](auto n) {
            return width <= lanes_of_head<n()> * n() ? launch(element, n, std::true_type{})
                                                     : launch(element, n, std::false_type{});
        };
        return is_wide && width % wide == 0 && aligned_16(p.weight)
                   ? with(std::integral_constant<int, wide>{})
                   : with(std::integral_constant<int, 1>{});
    });
}

}  // namespace

cudaError_t gated_norm(cudaStream_t stream, const GatedNormParams& p) {
    const bool is_wide = all_wide({&p.o, &p.z, &p.y});
    return with_columns(p, is_wide, [&](auto element, auto n, auto held) {
        return launch_early(stream, gated_norm_kernel<decltype(element), n(), held()>,
                            blocks_of<n()>(p), block_threads, 0, p);
    });
}

cudaError_t gated_norm_backward(cudaStream_t stream, const GatedNormBackwardParams& p) {
    const GatedNormParams& of = p.forward;
    const Matrix& y = of.y.data == nullptr ? of.o : of.y;
    const bool is_wide = all_wide({&of.o, &of.z, &y, &p.dy, &p.d_o, &p.d_z});
    return with_columns(of, is_wide, [&](auto element, auto n, auto held) {
        return launch_early(stream, gated_norm_backward_kernel<decltype(element), n(), held()>,
                            blocks_of<n()>(of), block_threads, 0, p);
    });
}

}  // namespace loratrain::kernels
