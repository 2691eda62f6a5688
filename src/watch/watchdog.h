#pragma once

#include <memory>

#include "comm/mpi_session.h"

namespace loratrain {

/// Ends the job when a rank is dead, stopped or stuck, with one message naming rank, host and
/// action, instead of letting the others wait for ever. Every rank beats over TCP (StarNetwork);
/// rank 0 judges all ranks, the others judge rank 0 (PeerJudge). Nothing is watched with one rank
/// or a time-out of 0. Ranks that cannot be reached over TCP are named in a warning and not
/// watched. Until it is there, and once it is dismissed, every rank watches alone (solo_watch.h).
class Watchdog {
  public:
    /// `timeout`: seconds of silence (run.peer_timeout). `worker_ranks`: PeerLimits'. Collective.
    Watchdog(const MpiSession& mpi, double timeout, int worker_ranks = 0);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// The training is over: from now on nobody judges. Collective.
    void dismiss();

  private:
    class Guard;
    const MpiSession& mpi_;
    std::unique_ptr<Guard> guard_;
};

}  // namespace loratrain
