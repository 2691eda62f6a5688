#pragma once

#include <cstddef>

#include "matrix.h"

namespace loratrain::kernels {

/// Tables up to this size travel as a kernel's argument: no copy engine, no pinned memory.
constexpr std::size_t small_table_bytes = 3840;

/// target[device, 16-byte aligned] = source[host], read before the call returns; `bytes` is rounded
/// up to a multiple of 16. Kernels behind it find the table in the L2 even before they call
/// wait_for_kernel_before(): an empty one, which starts when the table is written, is between.
cudaError_t store_small_table(cudaStream_t stream, void* target, const void* source,
                              std::size_t bytes);

}  // namespace loratrain::kernels
