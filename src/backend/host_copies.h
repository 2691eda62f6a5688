#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace loratrain {

/// Rows of `row_bytes` each: packed in host memory, `pitch` bytes apart in the backend's.
struct HostCopy {
    void* device = nullptr;
    std::size_t pitch = 0;
    void* host = nullptr;
    std::size_t row_bytes = 0;
    std::size_t rows = 0;
};

/// Copies between host memory and a backend's beside its stream (Backend::make_host_copies): on
/// CUDA on a stream of their own, by the copy engines; on the CPU at once. Loads are done in the
/// order of the calls. Its end waits for all of them.
class HostCopies {
  public:
    virtual ~HostCopies() = default;

    /// Copies from or to these whole pages run beside computation from now on, until this object
    /// ends; the memory outlives it. Throws Error where the system refuses.
    virtual void pin(void* data, std::size_t bytes) = 0;
    /// From the backend to pinned memory, after what is queued on its stream; there on return.
    virtual void save(std::span<const HostCopy> copies) = 0;
    /// From pinned memory; begins when what is queued on the backend's stream has ended.
    virtual void load(std::int32_t place, std::span<const HostCopy> copies) = 0;
    /// What is queued on the backend's stream from now on begins when the last load to `place` has
    /// ended.
    virtual void await(std::int32_t place) = 0;
};

}  // namespace loratrain
