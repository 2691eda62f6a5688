#include "experts.h"

#include "launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr std::int64_t warp_threads = 32;
constexpr std::int64_t block_warps = block_threads / warp_threads;
constexpr std::int64_t most_blocks_y = 65535;

/// Where a factor [rank, N], or [N, rank], has an entry of it as [rank, N].
__device__ __forceinline__ std::int64_t entry_of(const ExpertLoraParams& p, std::int64_t r,
                                                 std::int64_t n) {
    return p.of_b ? n * p.rank + r : r * p.wide.cols + n;
}

/// A block's row of T and which of its experts; place -1: another lane has that.
struct RoutedRow {
    std::int64_t place;
    std::int64_t wide;  ///< row of `wide`
    const float* factor;
};
__device__ __forceinline__ RoutedRow row_of_block(const ExpertLoraParams& p) {
    const std::int64_t entry = p.begin * p.routes.per_token + static_cast<std::int64_t>(blockIdx.x);
    const std::int64_t expert = p.routes.chosen[entry] - p.routes.before;
    const std::int64_t place = p.routes.places[entry];
    return {place, p.gathered ? entry / p.routes.per_token : place,
            p.factor + expert * p.rank * p.wide.cols};
}

template <class T>
__global__ void __launch_bounds__(block_threads) narrow_kernel(ExpertLoraParams p) {
    const RoutedRow row = row_of_block(p);
    if (row.place < 0) return;
    const T* wide = static_cast<const T*>(p.wide.data) + row.wide * p.wide.ld;
    T* narrow = static_cast<T*>(p.narrow.data) + row.place * p.narrow.ld + p.column;
    const std::int64_t lane = threadIdx.x % warp_threads;
    for (std::int64_t r = threadIdx.x / warp_threads; r < p.rank; r += block_warps) {
        float sum = 0.0F;
        for (std::int64_t n = lane; n < p.wide.cols; n += warp_threads) {
            sum = fmaf(to_float(wide[n]), row.factor[entry_of(p, r, n)], sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) narrow[r] = from_float<T>(p.scale * sum);
    }
}

template <class T>
__global__ void __launch_bounds__(block_threads) widen_kernel(ExpertLoraParams p) {
    const RoutedRow row = row_of_block(p);
    if (row.place < 0) return;
    T* wide = static_cast<T*>(p.wide.data) + row.place * p.wide.ld;
    const T* narrow = static_cast<const T*>(p.narrow.data) + row.place * p.narrow.ld + p.column;
    for (std::int64_t n = threadIdx.x; n < p.wide.cols; n += block_threads) {
        float sum = to_float(wide[n]);
        for (std::int64_t r = 0; r < p.rank; ++r) {
            sum = fmaf(to_float(narrow[r]), row.factor[entry_of(p, r, n)], sum);
        }
        wide[n] = from_float<T>(sum);
    }
}

/// The first place in [begin, end) whose row is not below `row`; rows ascend there.
__device__ __forceinline__ std::int64_t first_from(const std::int32_t* rows, std::int64_t begin,
                                                   std::int64_t end, std::int64_t row) {
    while (begin < end) {
        const std::int64_t middle = (begin + end) / 2;
        if (rows[middle] < row) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

template <class T>
__global__ void __launch_bounds__(block_threads) grads_kernel(ExpertLoraParams p) {
    const std::int64_t expert = blockIdx.x;
    const std::int64_t count = p.rank * p.wide.cols;
    const std::int64_t own = static_cast<std::int64_t>(blockIdx.y) * block_threads + threadIdx.x;
    if (own >= count) return;
    const std::int64_t last = p.routes.offsets[expert + 1];
    const std::int64_t begin = first_from(p.routes.rows, p.routes.offsets[expert], last, p.begin);
    const std::int64_t end = first_from(p.routes.rows, begin, last, p.end);
    if (begin == end) return;
    const std::int64_t r = p.of_b ? own % p.rank : own / p.wide.cols;
    const std::int64_t n = p.of_b ? own / p.rank : own % p.wide.cols;
    const T* wide = static_cast<const T*>(p.wide.data) + n;
    const T* narrow = static_cast<const T*>(p.narrow.data) + p.column + r;
    float sum = 0.0F;
    for (std::int64_t place = begin; place < end; ++place) {
        const std::int64_t row = p.gathered ? p.routes.rows[place] : place;
        sum = fmaf(to_float(narrow[place * p.narrow.ld]), to_float(wide[row * p.wide.ld]), sum);
    }
    p.gradient[expert * count + own] += sum;
}

template <class T, int N>
struct WeighBody {
    T* x;
    const std::int32_t* places;
    const float* weights;
    std::int64_t ld;
    __device__ void operator()(std::int64_t entry, std::int64_t col) const {
        if (places[entry] < 0) return;
        T* at = x + places[entry] * ld + col;
        float v[N];
        load<N>(at, v);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] *= weights[entry];
        store<N>(at, v);
    }
};

template <class T, int N>
cudaError_t launch_weigh(cudaStream_t stream, const Matrix& x, const Routes& routes) {
    const WeighBody<T, N> body{pointer<T>(x), routes.places, routes.weights, x.ld};
    return launch_elements<N>(stream, x.rows, x.cols, body);
}

unsigned rows_of_segment(const ExpertLoraParams& params) {
    return static_cast<unsigned>((params.end - params.begin) * params.routes.per_token);
}

}  // namespace

cudaError_t clear_narrow(cudaStream_t stream, const Matrix& narrow) {
    if (narrow.rows == 0 || narrow.cols == 0) return cudaSuccess;
    const std::size_t element = narrow.type == Element::f32 ? sizeof(float) : sizeof(float) / 2;
    return cudaMemset2DAsync(narrow.data, static_cast<std::size_t>(narrow.ld) * element, 0,
                             static_cast<std::size_t>(narrow.cols) * element,
                             static_cast<std::size_t>(narrow.rows), stream);
}

cudaError_t narrow_experts(cudaStream_t stream, const ExpertLoraParams& params) {
    if (rows_of_segment(params) == 0 || params.rank == 0) return cudaSuccess;
    return with_type(params.wide.type, [&](auto element) {
        using T = decltype(element);
        narrow_kernel<T><<<rows_of_segment(params), block_threads, 0, stream>>>(params);
        return cudaGetLastError();
    });
}

cudaError_t widen_experts(cudaStream_t stream, const ExpertLoraParams& params) {
    if (rows_of_segment(params) == 0 || params.rank == 0) return cudaSuccess;
    return with_type(params.wide.type, [&](auto element) {
        using T = decltype(element);
        widen_kernel<T><<<rows_of_segment(params), block_threads, 0, stream>>>(params);
        return cudaGetLastError();
    });
}

cudaError_t add_expert_grads(cudaStream_t stream, const ExpertLoraParams& params) {
    const std::int64_t count = params.rank * params.wide.cols;
    if (rows_of_segment(params) == 0 || count == 0) return cudaSuccess;
    const std::int64_t tiles = (count + block_threads - 1) / block_threads;
    if (tiles > most_blocks_y) return cudaErrorInvalidValue;
    const dim3 blocks(static_cast<unsigned>(params.routes.experts), static_cast<unsigned>(tiles));
    return with_type(params.wide.type, [&](auto element) {
        using T = decltype(element);
        grads_kernel<T><<<blocks, block_threads, 0, stream>>>(params);
        return cudaGetLastError();
    });
}

cudaError_t weigh_rows(cudaStream_t stream, const Matrix& x, const Routes& routes) {
    return with_type(x.type, [&](auto element) {
        using T = decltype(element);
        return all_wide({&x}) ? launch_weigh<T, wide>(stream, x, routes)
                              : launch_weigh<T, 1>(stream, x, routes);
    });
}

}  // namespace loratrain::kernels
