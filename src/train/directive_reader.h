#pragma once

#include <deque>
#include <functional>
#include <future>

#include "comm/directive_channel.h"
#include "train/directive.h"

namespace loratrain {

/// Rank 0's directives on another rank. The text of a window takes a while to read: one that
/// arrives while the window before trains is read in the background.
class DirectiveReader {
  public:
    /// The channel outlives it.
    explicit DirectiveReader(DirectiveChannel& channel) : channel_(channel) {}

    /// Takes up what has arrived; to be called now and then. Does not wait.
    void look();
    /// Waits for the next one; calls `meanwhile` now and then. Error where its text is damaged.
    Directive next(const std::function<void()>& meanwhile);

  private:
    void read(std::string text);

    DirectiveChannel& channel_;
    std::deque<std::future<Directive>> taken_;  ///< in order
};

}  // namespace loratrain
