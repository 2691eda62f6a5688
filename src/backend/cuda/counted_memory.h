#pragma once

#include <cstddef>

#include "backend/backend.h"

namespace loratrain {

/// cudaMalloc that adds to `use` (null: nobody counts); nullptr when device memory is short.
void* allocate_counted(std::size_t bytes, MemoryUse* use);

/// cudaFree of what allocate_counted gave for `bytes`; nullptr does nothing.
void free_counted(void* data, std::size_t bytes, MemoryUse* use);

}  // namespace loratrain
