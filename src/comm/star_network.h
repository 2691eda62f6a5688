#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mpi_session.h"

namespace loratrain {

/// Short texts over TCP between rank 0 and every other rank, for heartbeats.

/// Events of a StarNetwork, called on its thread, one at a time.
struct StarEvents {
    std::function<void(int rank, std::string_view line)> received;
    std::function<void(int rank)> lost;  ///< the connection broke or was closed
    /// About once per interval, and 0.3 s after a loss; `seconds` since the last tick.
    std::function<void(double seconds)> ticked;
};

/// Short lines of text over TCP (IPv4) between rank 0 and every other rank, independent of MPI. A
/// thread of its own carries them while the main thread computes or hangs. Rank 0 listens until all
/// ranks have connected, on the loopback device alone if all ranks are on its host. A random
/// number, which ranks get through MPI, keeps strangers out.
class StarNetwork {
  public:
    /// Connects; collective. Ranks that cannot be reached within a few seconds are left out.
    explicit StarNetwork(const MpiSession& mpi);
    /// Sends `farewell` to all, waits up to 0.5 s until they have read it, closes the connections
    /// and ends the thread.
    ~StarNetwork();
    StarNetwork(const StarNetwork&) = delete;
    StarNetwork& operator=(const StarNetwork&) = delete;

    /// The ranks that have a connection to rank 0, ascending, without rank 0; the same on all
    /// ranks.
    const std::vector<int>& connected() const { return connected_; }

    /// Begins to call events, the first tick at once.
    void start(StarEvents events, double interval, std::string farewell);

    /// Sends a line to all ranks connected to this one. For use in events only. Never waits: a line
    /// that does not fit into a connection's buffers is dropped.
    void send(const std::string& line);

    /// send() for any other thread; waits a moment until the line is sent.
    void last_words(const std::string& line);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
    std::vector<int> connected_;
};

}  // namespace loratrain
