#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "backend/backend.h"
#include "comm/communicator.h"

namespace loratrain {

/// Numbers read from the backend while the host goes on: they are used in the order asked for, as
/// soon as they have arrived. Every arrival counts as progress (base/activity.h).
class LateReads {
  public:
    /// Gets the parts one behind the other.
    using Use = std::function<void(const double*)>;

    LateReads(Backend& backend, Communicator& communicator)
        : backend_(backend), communicator_(communicator) {}

    void read(std::initializer_list<ReadPart> parts, Use use);
    /// Marks how far the stream has come.
    void mark() {
        read({}, [](const double*) {});
    }
    /// Uses what has arrived.
    void poll();
    /// Waits for all and uses it; throws Error when a link between stages failed meanwhile.
    void finish();
    /// Forgets what is under way.
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
