#include "elementwise.h"
#include "launch.cuh"

namespace loratrain::kernels {

namespace {

/// The thread of a target's first appearance makes all moves into it, in order.
__global__ void __launch_bounds__(block_threads)
    move_kernel(double* target, const double* source, const std::int32_t* target_index,
                const std::int32_t* source_index, std::int64_t count, bool add) {
    const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
    if (mine >= count) return;
    const std::int32_t to = target_index[mine];
    for (std::int64_t i = 0; i < mine; ++i) {
        if (target_index[i] == to) return;
    }
    double value = target[to];
    for (std::int64_t i = mine; i < count; ++i) {
        if (target_index[i] != to) continue;
        value = add ? value + source[source_index[i]] : source[source_index[i]];
    }
    target[to] = value;
}

}  // namespace

cudaError_t move_doubles(cudaStream_t stream, double* target, const double* source,
                         const std::int32_t* target_index, const std::int32_t* source_index,
                         std::int64_t count, bool add) {
    if (count == 0) return cudaSuccess;
    const auto blocks = static_cast<unsigned>((count + block_threads - 1) / block_threads);
    move_kernel<<<blocks, block_threads, 0, stream>>>(target, source, target_index, source_index,
                                                      count, add);
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
