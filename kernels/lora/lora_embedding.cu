#include "kernels/launch.cuh"
#include "lora.h"

namespace loratrain::kernels {

namespace {

constexpr unsigned whole_warp = 0xffffffffU;
constexpr int warp_threads = 32;
constexpr int block_warps = static_cast<int>(block_threads) / warp_threads;
constexpr int most_passes = 4;  ///< ranks that a thread adds up at a time

template <class T>
struct GatherColumns {
    LoraIdsParams p;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const std::int32_t id = p.ids[row];
        const std::int64_t i = col - p.column;
        const bool own = id >= 0 && i >= 0 && i < p.rank;
        const float value[1] = {own ? p.scale * p.a[i * p.columns + id] : 0.0F};
        store<1>(static_cast<T*>(p.s.data) + row * p.s.ld + col, value);
    }
};

/// Of 32 rows from `first` on, which have the id; every lane of the warp gets all.
__device__ unsigned rows_with(const LoraIdsParams& p, std::int64_t first, std::int64_t end,
                              std::int32_t id) {
    const std::int64_t row = first + threadIdx.x % warp_threads;
    return __ballot_sync(whole_warp, row < end && p.ids[row] == id);
}

/// A warp for each row; that of an id's first row adds up all of them.
template <class T>
__global__ void __launch_bounds__(block_threads) scatter_kernel(LoraIdsParams p) {
    const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * block_warps +
                             static_cast<std::int64_t>(threadIdx.x) / warp_threads;
    const auto lane = static_cast<int>(threadIdx.x % warp_threads);
    if (own >= p.s.rows || p.ids[own] < 0 || p.ids[own] == p.still) return;
    const std::int32_t id = p.ids[own];
    for (std::int64_t first = 0; first < own; first += warp_threads) {
        if (rows_with(p, first, own, id) != 0) return;
    }
    for (int from = 0; from < p.rank; from += most_passes * warp_threads) {
        float sums[most_passes];
#pragma unroll
        for (int pass = 0; pass < most_passes; ++pass) {
            const int i = from + pass * warp_threads + lane;
            sums[pass] = i < p.rank ? p.grad_a[i * p.columns + id] : 0.0F;
        }
        for (std::int64_t first = own; first < p.s.rows; first += warp_threads) {
            for (unsigned rows = rows_with(p, first, p.s.rows, id); rows != 0; rows &= rows - 1) {
                const std::int64_t row = first + __ffs(static_cast<int>(rows)) - 1;
                const T* ds = static_cast<const T*>(p.s.data) + row * p.s.ld + p.column;
#pragma unroll
                for (int pass = 0; pass < most_passes; ++pass) {
                    const int i = from + pass * warp_threads + lane;
                    float value[1] = {};
                    if (i < p.rank) load<1>(ds + i, value);
                    sums[pass] += value[0];
                }
            }
        }
#pragma unroll
        for (int pass = 0; pass < most_passes; ++pass) {
            const int i = from + pass * warp_threads + lane;
            if (i < p.rank) p.grad_a[i * p.columns + id] = sums[pass];
        }
    }
}

}  // namespace

cudaError_t lora_gather_a(cudaStream_t stream, const LoraIdsParams& params) {
    return with_type(params.s.type, [&](auto element) {
        using T = decltype(element);
        return launch_elements<1>(stream, params.s.rows, params.s.cols, GatherColumns<T>{params});
    });
}

cudaError_t lora_scatter_a(cudaStream_t stream, const LoraIdsParams& params) {
    if (params.s.rows == 0 || params.rank == 0) return cudaSuccess;
    const auto blocks = static_cast<unsigned>((params.s.rows + block_warps - 1) / block_warps);
    return with_type(params.s.type, [&](auto element) {
        using T = decltype(element);
        scatter_kernel<T><<<blocks, block_threads, 0, stream>>>(params);
        return cudaGetLastError();
    });
}

}  // namespace loratrain::kernels
