#pragma once

#include <vector>

namespace loratrain {

/// Points in the time of a backend's stream, to time ops without waiting for them.
class StreamClock {
  public:
    virtual ~StreamClock() = default;
    /// Queues a point behind the work queued so far.
    virtual void mark() = 0;
    /// Waits for the last point; seconds from the first point to each one, in order. Forgets them.
    virtual std::vector<double> read() = 0;
};

}  // namespace loratrain
