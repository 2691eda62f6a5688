#include "lane_norm.h"

#include "launch.cuh"

namespace loratrain::kernels {

namespace {

/// A block for each row.
template <class T, int N>
__global__ void __launch_bounds__(block_threads) row_dots_kernel(RowDotsParams p) {
    __shared__ float scratch[block_threads / 32];
    wait_for_kernel_before();
    const std::int64_t row = blockIdx.x;
    const T* a = static_cast<const T*>(p.a.data) + row * p.a.ld;
    const T* b = static_cast<const T*>(p.b.data) + row * p.b.ld;
    const T* weight = static_cast<const T*>(p.weight);
    float sum = 0.0F;
    for (std::int64_t j = static_cast<std::int64_t>(threadIdx.x) * N; j < p.a.cols;
         j += block_threads * N) {
        float left[N];
        float right[N];
        load<N>(a + j, left);
        load<N>(b + j, right);
        if (weight != nullptr) {
            float w[N];
            load<N>(weight + j, w);
#pragma unroll
            for (int i = 0; i < N; ++i) left[i] *= w[i] + p.weight_offset;
        }
#pragma unroll
        for (int i = 0; i < N; ++i) sum += left[i] * right[i];
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) p.sums.data[row * p.sums.stride] = sum;
}

__device__ __forceinline__ float inverse_of(const LaneNormParams& p, std::int64_t row) {
    return 1.0F / sqrtf(p.squares.data[row * p.squares.stride] / p.columns + p.eps);
}

template <class T, int N>
struct LaneNormBody {
    LaneNormParams p;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const float inverse = inverse_of(p, row);
        float v[N];
        float w[N];
        load<N>(static_cast<const T*>(p.x.data) + row * p.x.ld + col, v);
        load<N>(static_cast<const T*>(p.weight) + col, w);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] *= inverse * (w[i] + p.weight_offset);
        store<N>(static_cast<T*>(p.y.data) + row * p.y.ld + col, v);
    }
};

template <class T, int N>
struct LaneNormBackwardBody {
    LaneNormBackwardParams p;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const LaneNormParams& of = p.of;
        const float inverse = inverse_of(of, row);
        const float along = p.dots.data[row * p.dots.stride] * inverse * inverse / of.columns;
        float v[N];
        float w[N];
        float d[N];
        load<N>(static_cast<const T*>(of.x.data) + row * of.x.ld + col, v);
        load<N>(static_cast<const T*>(of.weight) + col, w);
        load<N>(static_cast<const T*>(p.dy.data) + row * p.dy.ld + col, d);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            d[i] = inverse * ((w[i] + of.weight_offset) * d[i] - v[i] * along);
        }
        store<N>(static_cast<T*>(p.dx.data) + row * p.dx.ld + col, d);
    }
};

template <class T, template <class, int> class Body, class Params>
cudaError_t launch_body(cudaStream_t stream, const Params& p, const Matrix& x, bool is_wide) {
    return is_wide ? launch_elements<wide>(stream, x.rows, x.cols, Body<T, wide>{p})
                   : launch_elements<1>(stream, x.rows, x.cols, Body<T, 1>{p});
}

}  // namespace

cudaError_t row_dots(cudaStream_t stream, const RowDotsParams& p) {
    if (p.a.rows == 0) return cudaSuccess;
    const bool is_wide = all_wide({&p.a, &p.b}) && aligned_16(p.weight);
    return with_type(p.a.type, [&](auto element) {
        using T = decltype(element);
        const auto kernel = is_wide ? row_dots_kernel<T, wide> : row_dots_kernel<T, 1>;
        return launch_early(stream, kernel, static_cast<unsigned>(p.a.rows), block_threads, 0, p);
    });
}

cudaError_t lane_norm(cudaStream_t stream, const LaneNormParams& p) {
    const bool is_wide = all_wide({&p.x, &p.y}) && aligned_16(p.weight);
    return with_type(p.x.type, [&](auto element) {
        return launch_body<decltype(element), LaneNormBody>(stream, p, p.x, is_wide);
    });
}

cudaError_t lane_norm_backward(cudaStream_t stream, const LaneNormBackwardParams& p) {
    const bool is_wide = all_wide({&p.of.x, &p.dy, &p.dx}) && aligned_16(p.of.weight);
    return with_type(p.of.x.type, [&](auto element) {
        return launch_body<decltype(element), LaneNormBackwardBody>(stream, p, p.of.x, is_wide);
    });
}

}  // namespace loratrain::kernels
