#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace loratrain {

/// Texts from a root to all other ranks, in order, and texts back. No rank waits for another.
/// CommandChannel is the one over MPI.
class TextChannel {
  public:
    TextChannel() = default;
    virtual ~TextChannel() = default;
    TextChannel(const TextChannel&) = delete;
    TextChannel& operator=(const TextChannel&) = delete;

    /// Root: sends a text to every rank; returns its number, counted from 1.
    virtual std::int64_t post(std::string text) = 0;
    /// Root: advances texts that are under way; call it now and then.
    virtual void progress() = 0;
    /// Root: the next report, in each rank's order; none if no whole report has arrived. Does not
    /// wait, since the sender may wait for this rank.
    virtual std::optional<std::string> next_report() = 0;

    /// Other ranks: sends a report, which the root may read later.
    virtual void send_report(std::string text) = 0;
    /// Other ranks: the next text; none if no whole text has arrived. Does not wait.
    virtual std::optional<std::string> arrived() = 0;
};

}  // namespace loratrain
