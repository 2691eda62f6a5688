#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/host_copies.h"

namespace loratrain {

/// Record of the times at which copies of one HostCopies ran, on the clock of their own stream.
/// Empty until start().
class TransferRecord {
  public:
    /// Copy of one layer, counted from the stage's first layer. Times are in seconds since start().
    struct Transfer {
        std::int32_t layer = 0;
        bool to_host = false;
        double start = 0.0;
        double end = 0.0;
    };

    /// Starts a new record and drops the old one. `link` outlives the record.
    void start(HostCopies& link);
    /// Clock for the next load or store; call add() after it. Null if nothing is recorded.
    StreamClock* clock() const { return now_.clock.get(); }
    void add(std::int32_t layer, bool to_host);
    /// Transfers that were recorded before the last call of take(): the host does not wait for
    /// running ones.
    std::vector<Transfer> take();

  private:
    struct Copy {
        std::int32_t layer = 0;
        bool to_host = false;
    };
    struct Part {
        /// One point, then two points per copy, then one point.
        std::unique_ptr<StreamClock> clock;
        std::vector<Copy> copies;
    };
    Part now_;
    Part before_;
    double start_of_before_ = 0.0;
};

}  // namespace loratrain
