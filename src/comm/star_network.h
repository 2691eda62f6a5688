#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mpi_session.h"

namespace loratrain {

/// What happens on a StarNetwork; called on its thread, one at a time.
struct StarEvents {
    std::function<void(int rank, std::string_view line)> received;
    std::function<void(int rank)> lost;  ///< the connection broke or was closed
    /// About every interval, and 0.3 s after a loss; seconds since the last.
    std::function<void(double seconds)> ticked;
};

/// Short lines of text over TCP (IPv4) between rank 0 and every other rank, beside MPI: from a
/// thread of its own, so that it works while the main thread computes or hangs. Rank 0 listens (on
/// the loopback device alone when all ranks are on its host) until all have come; a random number
/// that MPI carries keeps strangers out.
class StarNetwork {
  public:
    /// Connects; collective. Ranks that cannot be reached within a few seconds are left out.
    explicit StarNetwork(const MpiSession& mpi);
    /// Sends `farewell` to all, waits up to half a second until they have read it, closes the
    /// connections, ends the thread.
    ~StarNetwork();
    StarNetwork(const StarNetwork&) = delete;
    StarNetwork& operator=(const StarNetwork&) = delete;

    /// On every rank: those that have a connection to rank 0, ascending, without rank 0.
    const std::vector<int>& connected() const { return connected_; }

    /// From now on events are called, the first tick at once.
    void start(StarEvents events, double interval, std::string farewell);

    /// To all that are connected to this rank; from events only. Never waits: what does not fit
    /// into the buffers of the connection is dropped.
    void send(const std::string& line);

    /// The same from any other thread; waits a moment until it is sent.
    void last_words(const std::string& line);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
    std::vector<int> connected_;
};

}  // namespace loratrain
