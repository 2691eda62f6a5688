#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace loratrain {

/// Texts from a root to all others, in order, and texts back: none waits for another. Over MPI
/// CommandChannel is one.
class TextChannel {
  public:
    TextChannel() = default;
    virtual ~TextChannel() = default;
    TextChannel(const TextChannel&) = delete;
    TextChannel& operator=(const TextChannel&) = delete;

    /// Root: on its way to every rank when it returns; the number of the text, counted from 1.
    virtual std::int64_t post(std::string text) = 0;
    /// Root: lets texts travel on; to be called now and then while some are under way.
    virtual void progress() = 0;
    /// Root: the next text that was reported, in the order of each rank; none = none is there as a
    /// whole. Waits for no rank, which may wait for this one.
    virtual std::optional<std::string> next_report() = 0;

    /// Other ranks: a text for the root, which does not have to wait for it.
    virtual void send_report(std::string text) = 0;
    /// Other ranks: the next text; none = it is not there as a whole. Waits for no rank.
    virtual std::optional<std::string> arrived() = 0;
};

}  // namespace loratrain
