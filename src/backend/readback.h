#pragma once

#include <cstddef>
#include <vector>

namespace loratrain {

/// What the host gets from a backend's stream without stopping it: values and times.

/// A piece of backend memory to be read.
struct ReadPart {
    const void* source = nullptr;
    std::size_t bytes = 0;
};

/// Bytes on their way from backend memory to the host (Backend::read_later). Destroyed before its
/// backend.
class Readback {
  public:
    virtual ~Readback() = default;
    /// True once the stream has passed the reading; does not wait.
    virtual bool ready() = 0;
    /// The parts one behind the other, valid as long as the object; waits if not ready().
    virtual const void* value() = 0;
};

/// Points in the time of a backend's stream, to time operators without waiting for them.
class StreamClock {
  public:
    virtual ~StreamClock() = default;
    /// Queues a point behind the work queued so far.
    virtual void mark() = 0;
    /// Waits for the last point. Returns the seconds from the first point to each point, in order,
    /// and forgets the points.
    virtual std::vector<double> read() = 0;
};

}  // namespace loratrain
