#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "backend/backend.h"
#include "comm/communicator.h"

namespace loratrain {

/// Reads numbers from the backend without stopping the host. They are used in the order asked for,
/// as soon as they have arrived. Every arrival counts as progress (base/activity.h).
class LateReads {
  public:
    /// Takes the values of all parts, one part after the other.
    using Use = std::function<void(const double*)>;

    LateReads(Backend& backend, Communicator& communicator)
        : backend_(backend), communicator_(communicator) {}

    void read(std::initializer_list<ReadPart> parts, Use use);
    /// Counts as progress once the backend has come here.
    void mark() {
        read({}, [](const double*) {});
    }
    /// Uses numbers that have arrived.
    void poll();
    /// Waits for all numbers and uses them. Error if a link between stages has failed meanwhile.
    void finish();
    /// Forgets all reads that have not arrived.
    void clear() { pending_.clear(); }

  private:
    struct Pending {
        std::unique_ptr<Readback> readback;
        Use use;
    };

    Backend& backend_;
    Communicator& communicator_;
    std::deque<Pending> pending_;
};

}  // namespace loratrain
