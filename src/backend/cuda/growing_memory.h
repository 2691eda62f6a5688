#pragma once

#include <cstddef>

namespace loratrain {

/// Device memory that is replaced by a larger piece when more is asked for; its contents are lost
/// then. In the steady state it allocates nothing.
class GrowingMemory {
  public:
    GrowingMemory() = default;
    ~GrowingMemory();
    GrowingMemory(const GrowingMemory&) = delete;
    GrowingMemory& operator=(const GrowingMemory&) = delete;

    /// At least `bytes`; `what` names them when memory is short (Error).
    void* reserve(std::size_t bytes, const char* what);
    /// The same, nullptr when memory is short.
    void* try_reserve(std::size_t bytes);
    void* data() const { return data_; }

  private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace loratrain
