#pragma once

#include <cstddef>

#include "backend/backend.h"

namespace loratrain {

/// Device memory that is replaced by a larger piece when more is asked for; its contents are lost
/// then. In the steady state it allocates nothing. Counted in `use` unless that is null.
class GrowingMemory {
  public:
    explicit GrowingMemory(MemoryUse* use = nullptr) : use_(use) {}
    ~GrowingMemory();
    GrowingMemory(const GrowingMemory&) = delete;
    GrowingMemory& operator=(const GrowingMemory&) = delete;

    /// At least `bytes`; `what` names them when memory is short (Error).
    void* reserve(std::size_t bytes, const char* what);
    /// The same, nullptr when memory is short.
    void* try_reserve(std::size_t bytes);
    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

  private:
    MemoryUse* use_;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace loratrain
