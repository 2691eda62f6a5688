#include "rms_norm.h"

#include "quantize.cuh"

namespace loratrain::kernels {

namespace {

/// One group of one row, handled by `lanes` threads: a warp or the whole block.
struct Place {
    std::int64_t row;
    std::int64_t first;
    int lane;
    bool valid;
};

template <int lanes>
__device__ __forceinline__ Place place_of(std::int64_t rows, std::int64_t groups,
                                          std::int64_t width) {
    constexpr int per_block = block_threads / lanes;
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * per_block + threadIdx.x / lanes;
    return {i / groups, i % groups * width, static_cast<int>(threadIdx.x % lanes),
            i < rows * groups};
}

template <int lanes>
__device__ __forceinline__ float group_sum(float value, float* scratch) {
    if constexpr (lanes == 32) {
        return warp_sum(value);
    } else {
        return block_sum(value, scratch);
    }
}

template <class T, int N, int lanes>
__global__ void __launch_bounds__(block_threads)
    forward_kernel(RmsNormParams p, std::int64_t width) {
    __shared__ float scratch[block_threads / 32];
    const Place at = place_of<lanes>(p.x.rows, p.groups, width);
    wait_for_kernel_before();
    if (!at.valid) return;
    const T* x = static_cast<const T*>(p.x.data) + at.row * p.x.ld + at.first;
    T* y = static_cast<T*>(p.y.data) + at.row * p.y.ld + at.first;
    const T* weight = static_cast<const T*>(p.weight);
    float sum = 0.0F;
    for (std::int64_t j = at.lane * N; j < width; j += lanes * N) {
        float v[N];
        load<N>(x + j, v);
#pragma unroll
        for (int i = 0; i < N; ++i) sum += v[i] * v[i];
    }
    sum = group_sum<lanes>(sum, scratch);
    const float inverse = 1.0F / sqrtf(sum / static_cast<float>(width) + p.eps);
    for (std::int64_t j = at.lane * N; j < width; j += lanes * N) {
        float v[N];
        float w[N];
        load<N>(x + j, v);
        load<N>(weight + j, w);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] *= inverse * w[i];
        store<N>(y + j, v);
    }
}

/// A row per block, read once and held for its codes; what it writes to y has the bits that
/// forward_kernel gives.
template <class T, int passes>
__global__ void __launch_bounds__(block_threads) forward_with_codes_kernel(RmsNormParams p) {
    __shared__ float scratch[block_threads / 32];
    __shared__ std::uint32_t largest[block_threads / 32];
    using Row = HeldRow<T, block_threads, passes>;
    const std::int64_t row = blockIdx.x;
    const std::int64_t width = p.x.cols;
    const T* x = static_cast<const T*>(p.x.data) + row * p.x.ld;
    T* y = static_cast<T*>(p.y.data) + row * p.y.ld;
    const T* weight = static_cast<const T*>(p.weight);
    Row held;
    float sum = 0.0F;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        const std::int64_t col = Row::column(pass);
        if (col >= width) break;
        held.take(pass, x + col);
        float v[wide];
        held.values(pass, nullptr, v);
#pragma unroll
        for (int i = 0; i < wide; ++i) sum += v[i] * v[i];
    }
    sum = block_sum(sum, scratch);
    const float inverse = 1.0F / sqrtf(sum / static_cast<float>(width) + p.eps);
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        const std::int64_t col = Row::column(pass);
        if (col >= width) break;
        float v[wide];
        float w[wide];
        held.values(pass, nullptr, v);
        load<wide>(weight + col, w);
#pragma unroll
        for (int i = 0; i < wide; ++i) v[i] *= inverse * w[i];
        held.take(pass, v);
        held.give(pass, y + col);
    }
    held.write_codes(width, nullptr, p.codes, row, largest);
}

template <class T, int N>
__device__ __forceinline__ void store_gradient(T* dx, float (&v)[N], bool accumulate) {
    if (accumulate) {
        float before[N];
        load<N>(dx, before);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] += before[i];
    }
    store<N>(dx, v);
}

template <class T, int N, int lanes>
__global__ void __launch_bounds__(block_threads)
    backward_kernel(RmsNormBackwardParams p, std::int64_t width) {
    __shared__ float scratch[block_threads / 32];
    const Place at = place_of<lanes>(p.x.rows, p.groups, width);
    wait_for_kernel_before();
    if (!at.valid) return;
    const T* x = static_cast<const T*>(p.x.data) + at.row * p.x.ld + at.first;
    const T* dy = static_cast<const T*>(p.dy.data) + at.row * p.dy.ld + at.first;
    T* dx = static_cast<T*>(p.dx.data) + at.row * p.dx.ld + at.first;
    const T* weight = static_cast<const T*>(p.weight);
    float sum = 0.0F;
    float dot = 0.0F;
    for (std::int64_t j = at.lane * N; j < width; j += lanes * N) {
        float v[N];
        float w[N];
        float d[N];
        load<N>(x + j, v);
        load<N>(weight + j, w);
        load<N>(dy + j, d);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            sum += v[i] * v[i];
            dot += v[i] * w[i] * d[i];
        }
    }
    sum = group_sum<lanes>(sum, scratch);
    dot = group_sum<lanes>(dot, scratch);
    const auto count = static_cast<float>(width);
    const float inverse = 1.0F / sqrtf(sum / count + p.eps);
    const float along = dot * inverse * inverse / count;
    for (std::int64_t j = at.lane * N; j < width; j += lanes * N) {
        float v[N];
        float w[N];
        float d[N];
        load<N>(x + j, v);
        load<N>(weight + j, w);
        load<N>(dy + j, d);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] = inverse * (w[i] * d[i] - v[i] * along);
        store_gradient<T, N>(dx + j, v, p.accumulate);
    }
}

constexpr std::int64_t widest_of_a_warp = 512;

unsigned blocks_for(std::int64_t row_groups, std::int64_t width) {
    const std::int64_t per_block = width <= widest_of_a_warp ? block_threads / 32 : 1;
    return static_cast<unsigned>((row_groups + per_block - 1) / per_block);
}

template <class T, int N>
cudaError_t launch_forward(cudaStream_t stream, const RmsNormParams& p, std::int64_t width) {
    const unsigned blocks = blocks_for(p.x.rows * p.groups, width);
    if (width <= widest_of_a_warp) {
        return launch_early(stream, forward_kernel<T, N, 32>, blocks, block_threads, 0, p, width);
    }
    return launch_early(stream, forward_kernel<T, N, block_threads>, blocks, block_threads, 0, p,
                        width);
}

template <class T, int N>
cudaError_t launch_backward(cudaStream_t stream, const RmsNormBackwardParams& p,
                            std::int64_t width) {
    const unsigned blocks = blocks_for(p.x.rows * p.groups, width);
    if (width <= widest_of_a_warp) {
        return launch_early(stream, backward_kernel<T, N, 32>, blocks, block_threads, 0, p, width);
    }
    return launch_early(stream, backward_kernel<T, N, block_threads>, blocks, block_threads, 0, p,
                        width);
}

bool wide_weight(const void* weight, std::int64_t width) {
    return aligned_16(weight) && width % wide == 0;
}

/// Of one group of columns; false where no kernel makes codes beside y.
template <class T>
bool launch_with_codes(cudaStream_t stream, const RmsNormParams& p) {
    constexpr std::int64_t pass = block_threads * wide;
    const auto rows = static_cast<unsigned>(p.x.rows);
    if (p.groups != 1 || p.x.cols <= widest_of_a_warp || !all_wide({&p.x, &p.y}) ||
        !wide_weight(p.weight, p.x.cols) || !takes_wide_codes(p.codes, nullptr)) {
        return false;
    }
    if (p.x.cols <= 2 * pass) {
        forward_with_codes_kernel<T, 2><<<rows, block_threads, 0, stream>>>(p);
    } else if (p.x.cols <= 4 * pass) {
        forward_with_codes_kernel<T, 4><<<rows, block_threads, 0, stream>>>(p);
    } else {
        return false;
    }
    return true;
}

template <class T>
cudaError_t launch_plain(cudaStream_t stream, const RmsNormParams& p) {
    const std::int64_t width = p.x.cols / p.groups;
    return all_wide({&p.x, &p.y}) && wide_weight(p.weight, width)
               ? launch_forward<T, wide>(stream, p, width)
               : launch_forward<T, 1>(stream, p, width);
}

}  // namespace

cudaError_t rms_norm(cudaStream_t stream, const RmsNormParams& p) {
    if (p.x.rows == 0 || p.x.cols == 0) return cudaSuccess;
    return with_type(p.x.type, [&](auto element) {
        using T = decltype(element);
        if (p.codes.codes == nullptr) return launch_plain<T>(stream, p);
        if (launch_with_codes<T>(stream, p)) return cudaGetLastError();
        const cudaError_t error = launch_plain<T>(stream, p);
        return error != cudaSuccess ? error : quantize_rows(stream, p.y, nullptr, p.codes);
    });
}

cudaError_t rms_norm_backward(cudaStream_t stream, const RmsNormBackwardParams& p) {
    if (p.x.rows == 0 || p.x.cols == 0) return cudaSuccess;
    const std::int64_t width = p.x.cols / p.groups;
    return with_type(p.x.type, [&](auto element) {
        using T = decltype(element);
        return all_wide({&p.x, &p.dy, &p.dx}) && wide_weight(p.weight, width)
                   ? launch_backward<T, wide>(stream, p, width)
                   : launch_backward<T, 1>(stream, p, width);
    });
}

}  // namespace loratrain::kernels
