#pragma once

#include <cstddef>

#include "backend/backend.h"

namespace loratrain {

/// Device memory of the CUDA backend, counted in a MemoryUse (null: not counted).

/// cudaMalloc; null if device memory is short.
void* allocate_counted(std::size_t bytes, MemoryUse* use);

/// cudaFree of memory that allocate_counted() gave for `bytes`; null does nothing.
void free_counted(void* data, std::size_t bytes, MemoryUse* use);

/// Device memory that is replaced by a larger piece when more is asked for, which loses its
/// contents. Allocates nothing in steady state.
class GrowingMemory {
  public:
    explicit GrowingMemory(MemoryUse* use = nullptr) : use_(use) {}
    ~GrowingMemory();
    GrowingMemory(const GrowingMemory&) = delete;
    GrowingMemory& operator=(const GrowingMemory&) = delete;

    /// At least `bytes`. Throws Error naming `what` if device memory is short.
    void* reserve(std::size_t bytes, const char* what);
    /// At least `bytes`; null if device memory is short.
    void* try_reserve(std::size_t bytes);
    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

  private:
    MemoryUse* use_;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace loratrain
