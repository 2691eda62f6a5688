#pragma once

#include <memory>

#include "comm/mpi_session.h"

namespace loratrain {

/// Ends the job when a rank is dead, stopped or stuck, with one message that names rank, host and
/// action. Without it the other ranks would wait for ever.
///
/// Every rank sends beats over TCP (StarNetwork). Rank 0 judges all ranks; the other ranks judge
/// rank 0 (PeerJudge). Nothing is watched with one rank or with a time-out of 0. Ranks that cannot
/// be reached over TCP are named in a warning and not watched. Before the Watchdog exists and after
/// it is dismissed, every rank watches alone (solo_watch.h).
class Watchdog {
  public:
    /// `timeout`: seconds of silence (run.peer_timeout). `worker_ranks`: as in PeerLimits.
    /// Collective.
    Watchdog(const MpiSession& mpi, double timeout, int worker_ranks = 0);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// Ends the watch, when training is over. Collective.
    void dismiss();

  private:
    class Guard;
    const MpiSession& mpi_;
    std::unique_ptr<Guard> guard_;
};

}  // namespace loratrain
