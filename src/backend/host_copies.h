#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/readback.h"

namespace loratrain {

/// Copies between host memory and a backend's memory that overlap with computation.

/// A copy of rows of `row_bytes` bytes, `pitch` bytes apart in the backend's memory. In host memory
/// rows are packed; in the memory of another process they are `other_pitch` apart.
struct HostCopy {
    void* device = nullptr;
    std::size_t pitch = 0;
    void* host = nullptr;
    std::size_t row_bytes = 0;
    std::size_t rows = 0;
    std::size_t other_pitch = 0;  ///< 0 = packed
    std::size_t host_pitch() const { return other_pitch == 0 ? row_bytes : other_pitch; }
};

/// On CUDA the copies run on a stream of their own, by the copy engines; on the CPU at once. Loads
/// and stores are done in the order of the calls. Loads may also read memory that other processes
/// of the host offer (open()). Destruction waits for all copies.
class HostCopies {
  public:
    virtual ~HostCopies() = default;

    /// Pins whole pages until this object ends, so that copies from and to them overlap with
    /// computation. The memory outlives this object. Throws Error if the system refuses.
    virtual void pin(void* data, std::size_t bytes) = 0;
    /// Copies from the backend to pinned memory after the work queued on its stream; waits.
    virtual void save(std::span<const HostCopy> copies) = 0;
    /// Queues a copy from pinned or opened memory, which begins when the work now queued on the
    /// backend's stream has ended. `clock`, from make_clock(), gets a point at its begin and one at
    /// its end; null = no clock.
    virtual void load(std::int32_t place, std::span<const HostCopy> copies,
                      StreamClock* clock = nullptr) = 0;
    /// Queues a copy to pinned memory, which begins when the work now queued on the backend's
    /// stream has ended. After await(place) the backend's memory may be written again. `clock`: as
    /// load().
    virtual void store(std::int32_t place, std::span<const HostCopy> copies,
                       StreamClock* clock = nullptr) = 0;
    /// Makes work queued on the backend's stream from now on begin only when the last load to
    /// `place`, or store from it, has ended.
    virtual void await(std::int32_t place) = 0;
    /// A clock of the copies' stream. Must not outlive this object.
    virtual std::unique_ptr<StreamClock> make_clock() = 0;

    /// A text by which other processes open() a piece of memory that the backend allocated. Throws
    /// Error if the backend's memory cannot be shared.
    virtual std::string offer(void* data);
    /// Memory of another process, by its offer, to load from until close() or the end of this
    /// object; the other process must keep it. Throws Error if the system refuses.
    virtual void* open(const std::string& offer);
    /// Waits for all loads and stores, and releases opened memory.
    virtual void close() {}
};

}  // namespace loratrain
