#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/host_copies.h"

namespace loratrain {

/// When copies of one HostCopies ran, in the time of their own stream; nothing until start().
class TransferRecord {
  public:
    /// A layer's, of the stage's, in seconds since start().
    struct Transfer {
        std::int32_t layer = 0;
        bool to_host = false;
        double start = 0.0;
        double end = 0.0;
    };

    /// Records what comes from now on, and forgets what came before. This must not outlive `link`.
    void start(HostCopies& link);
    /// For the next load or store, which add() tells of then; null where nothing records.
    StreamClock* clock() const { return now_.clock.get(); }
    void add(std::int32_t layer, bool to_host);
    /// Those recorded before the last call, so that nothing waits for them.
    std::vector<Transfer> take();

  private:
    struct Copy {
        std::int32_t layer = 0;
        bool to_host = false;
    };
    struct Part {
        std::unique_ptr<StreamClock> clock;  ///< a point, two of each copy, and one
        std::vector<Copy> copies;
    };
    Part now_;
    Part before_;
    double start_of_before_ = 0.0;
};

}  // namespace loratrain
