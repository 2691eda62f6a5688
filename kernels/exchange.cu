#include "exchange.h"

#include <algorithm>

#include "launch.cuh"

namespace loratrain::kernels {

namespace {

/// Of a launch, whose table is an argument of the kernel.
constexpr std::size_t entries_at_once = 64;
constexpr unsigned blocks_of_an_entry = 16;
static_assert(entries_at_once * blocks_of_an_entry <= add_parts_workspace);

struct CopyTable {
    BlockCopy entries[entries_at_once];
};

__global__ void __launch_bounds__(block_threads)
    copy_blocks_kernel(const __grid_constant__ CopyTable table) {
    const BlockCopy& copy = table.entries[blockIdx.y];
    const std::int64_t count = copy.rows * copy.cols;
    const std::int64_t step = std::int64_t{gridDim.x} * block_threads;
    for (std::int64_t i = std::int64_t{blockIdx.x} * block_threads + threadIdx.x; i < count;
         i += step) {
        const std::int64_t row = copy.rows == 1 ? 0 : i / copy.cols;
        const std::int64_t col = i - row * copy.cols;
        copy.to[row * copy.to_ld + col] = copy.from[row * copy.from_ld + col];
    }
}

struct SumTable {
    struct Entry {
        float* values;
        std::int64_t count;
        std::int32_t first;  ///< of its places
        std::int32_t parts;
    };
    Entry entries[entries_at_once];
    std::int64_t places[most_parts];
};
static_assert(sizeof(SumTable) + 64 <= 4352, "arguments of a kernel");

__global__ void __launch_bounds__(block_threads)
    add_parts_kernel(const __grid_constant__ SumTable table, double* squares) {
    __shared__ double scratch[block_threads / 32];
    const SumTable::Entry& entry = table.entries[blockIdx.y];
    const std::int64_t* places = table.places + entry.first;
    const std::int64_t step = std::int64_t{gridDim.x} * block_threads;
    double own = 0.0;
    for (std::int64_t i = std::int64_t{blockIdx.x} * block_threads + threadIdx.x; i < entry.count;
         i += step) {
        float sum = entry.values[places[0] + i];
        for (std::int32_t p = 1; p < entry.parts; ++p) {
            sum = __fadd_rn(sum, entry.values[places[p] + i]);
        }
        for (std::int32_t p = 0; p < entry.parts; ++p) entry.values[places[p] + i] = sum;
        own += static_cast<double>(sum) * static_cast<double>(sum);
    }
    own = block_sum(own, scratch);
    if (threadIdx.x == 0) squares[blockIdx.y * gridDim.x + blockIdx.x] = own;
}

__global__ void __launch_bounds__(block_threads)
    add_squares_kernel(const double* squares, unsigned count, double* result) {
    __shared__ double scratch[block_threads / 32];
    double sum = 0.0;
    for (unsigned i = threadIdx.x; i < count; i += block_threads) sum += squares[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) *result += sum;
}

/// As many of the sums as the table holds; returns their number.
std::size_t fill(SumTable& table, const PartsToAdd* sums, std::size_t count) {
    std::int32_t places = 0;
    std::size_t i = 0;
    for (; i < std::min(count, entries_at_once); ++i) {
        const PartsToAdd& sum = sums[i];
        if (places + sum.parts > most_parts) break;
        table.entries[i] = {sum.values, sum.count, places, sum.parts};
        std::copy_n(sum.places, sum.parts, table.places + places);
        places += sum.parts;
    }
    return i;
}

}  // namespace

cudaError_t copy_blocks(cudaStream_t stream, const BlockCopy* copies, std::size_t count) {
    CopyTable table{};
    for (std::size_t first = 0; first < count; first += entries_at_once) {
        const std::size_t entries = std::min(entries_at_once, count - first);
        std::copy_n(copies + first, entries, table.entries);
        copy_blocks_kernel<<<dim3(blocks_of_an_entry, static_cast<unsigned>(entries)),
                             block_threads, 0, stream>>>(table);
    }
    return cudaGetLastError();
}

cudaError_t add_parts(cudaStream_t stream, const PartsToAdd* sums, std::size_t count,
                      double* squares, double* workspace) {
    SumTable table{};
    for (std::size_t first = 0; first < count;) {
        const std::size_t entries = fill(table, sums + first, count - first);
        if (entries == 0) return cudaErrorInvalidValue;
        const auto rows = static_cast<unsigned>(entries);
        add_parts_kernel<<<dim3(blocks_of_an_entry, rows), block_threads, 0, stream>>>(table,
                                                                                       workspace);
        add_squares_kernel<<<1, block_threads, 0, stream>>>(workspace, rows * blocks_of_an_entry,
                                                            squares);
        first += entries;
    }
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
