#include <cstring>

#include "small_table.h"

namespace loratrain::kernels {

namespace {

constexpr unsigned threads = 256;

struct Table {
    uint4 words[small_table_bytes / sizeof(uint4)];
};

__global__ void __launch_bounds__(threads)
    store_kernel(uint4* target, const __grid_constant__ Table table, unsigned count) {
    if (threadIdx.x < count) target[threadIdx.x] = table.words[threadIdx.x];
}

__global__ void end_kernel() {}

}  // namespace

cudaError_t store_small_table(cudaStream_t stream, void* target, const void* source,
                              std::size_t bytes) {
    if (bytes == 0) return cudaSuccess;
    if (bytes > small_table_bytes) return cudaErrorInvalidValue;
    Table table;
    std::memcpy(&table, source, bytes);
    const auto count = static_cast<unsigned>((bytes + sizeof(uint4) - 1) / sizeof(uint4));
    store_kernel<<<1, threads, 0, stream>>>(static_cast<uint4*>(target), table, count);
    end_kernel<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
