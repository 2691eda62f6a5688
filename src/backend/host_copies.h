#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/stream_clock.h"

namespace loratrain {

/// Rows of `row_bytes` each: `pitch` bytes apart in the backend's memory; packed in host memory, or
/// `other_pitch` apart in that of another process.
struct HostCopy {
    void* device = nullptr;
    std::size_t pitch = 0;
    void* host = nullptr;
    std::size_t row_bytes = 0;
    std::size_t rows = 0;
    std::size_t other_pitch = 0;  ///< 0 = packed
    std::size_t host_pitch() const { return other_pitch == 0 ? row_bytes : other_pitch; }
};

/// Copies between host memory and a backend's beside its stream (Backend::make_host_copies): on
/// CUDA on a stream of their own, by the copy engines; on the CPU at once. Loads and stores are
/// done in the order of the calls; loads read what other processes of the host have opened to this
/// one as well. Its end waits for all of them.
class HostCopies {
  public:
    virtual ~HostCopies() = default;

    /// Copies from or to these whole pages run beside computation from now on, until this object
    /// ends; the memory outlives it. Throws Error where the system refuses.
    virtual void pin(void* data, std::size_t bytes) = 0;
    /// From the backend to pinned memory, after what is queued on its stream; there on return.
    virtual void save(std::span<const HostCopy> copies) = 0;
    /// From pinned or opened memory; begins when what is queued on the backend's stream has ended.
    /// `clock`, one of make_clock(), gets a point there and one at the end; null: none.
    virtual void load(std::int32_t place, std::span<const HostCopy> copies,
                      StreamClock* clock = nullptr) = 0;
    /// To pinned memory; begins when what is queued on the backend's stream has ended. await(place)
    /// tells when the backend's memory may be written again. `clock`: as load's.
    virtual void store(std::int32_t place, std::span<const HostCopy> copies,
                       StreamClock* clock = nullptr) = 0;
    /// What is queued on the backend's stream from now on begins when the last load to `place`, or
    /// store from it, has ended.
    virtual void await(std::int32_t place) = 0;
    /// A clock of the copies' own stream; it must not outlive this object.
    virtual std::unique_ptr<StreamClock> make_clock() = 0;

    /// By what other processes open() memory that the backend allocated as one. Throws Error where
    /// a backend's cannot be opened.
    virtual std::string offer(void* data);
    /// Memory of another process, by its offer: to load from, until close() or this object's end,
    /// and no longer than the other keeps it. Throws Error where the system refuses.
    virtual void* open(const std::string& offer);
    /// Waits for all loads and stores, and lets go of what was opened.
    virtual void close() {}
};

}  // namespace loratrain
