#pragma once

#include <functional>

namespace loratrain {

class Communicator;

/// What the main thread does, as long as the object lives, whenever it waits for other ranks: some
/// of them may wait for just that. One at a time, of the process; it must not wait itself.
class WhileWaiting {
  public:
    explicit WhileWaiting(std::function<void()> work);
    ~WhileWaiting();
    WhileWaiting(const WhileWaiting&) = delete;
    WhileWaiting& operator=(const WhileWaiting&) = delete;
};

/// Whether there is any.
bool has_work_while_waiting();
/// Does some of it; to be called now and then by whatever waits for other ranks.
void work_while_waiting();
/// The same for whoever waits for its device: also takes up what has arrived, and throws Error
/// naming the link that is known to have failed.
void work_while_waiting(Communicator& communicator);

}  // namespace loratrain
