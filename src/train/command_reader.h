#pragma once

#include <deque>
#include <functional>
#include <future>

#include "comm/command_channel.h"
#include "train/command.h"

namespace loratrain {

/// Rank 0's commands on another rank. The text of a window takes a while to read: one that
/// arrives while the window before trains is read in the background.
class CommandReader {
  public:
    /// The channel outlives it.
    explicit CommandReader(CommandChannel& channel) : channel_(channel) {}

    /// Takes up what has arrived; to be called now and then. Does not wait.
    void look();
    /// Waits for the next one; calls `meanwhile` now and then. Error where its text is damaged.
    WorkerCommand next(const std::function<void()>& meanwhile);

  private:
    void read(std::string text);

    CommandChannel& channel_;
    std::deque<std::future<WorkerCommand>> taken_;  ///< in order
};

}  // namespace loratrain
