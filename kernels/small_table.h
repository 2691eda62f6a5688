#pragma once

#include <cstddef>

#include "matrix.h"

namespace loratrain::kernels {

/// Small tables from the host in device memory.

/// Tables of at most so many bytes are a kernel's argument: no copy engine, no pinned memory.
constexpr std::size_t small_table_bytes = 3840;

/// target = source. `source` is host memory, read before the call returns; `target` is device
/// memory aligned to 16 bytes, and `bytes` is rounded up to a multiple of 16. Kernels queued later
/// find the table in the L2 cache even before they call wait_for_kernel_before(): an empty kernel
/// in between starts when the table is written.
cudaError_t store_small_table(cudaStream_t stream, void* target, const void* source,
                              std::size_t bytes);

}  // namespace loratrain::kernels
