#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/activity.h"

namespace loratrain {

/// Decides from heartbeats whether a rank is at fault.

/// A heartbeat of a rank.
struct Beat {
    activity::State state;
    std::uint64_t progress = 0;  ///< activity::progress()
};

/// A beat as one line of text, and back; nullopt if the line is not a beat.
std::string to_line(const Beat& beat);
std::optional<Beat> beat_from_line(std::string_view line);

/// Seconds after which a rank is judged to be at fault. 0 = never.
struct PeerLimits {
    double silence = 30.0;   ///< no beat
    double closed = 0.3;     ///< the connection broke; the launcher ends all ranks a second later
    double failed = 5.0;     ///< the connection broke after the rank said why it ends
    double deadlock = 60.0;  ///< every rank waits for another and none makes progress
    double device = 60.0;    ///< no progress of a rank that works with its GPU; or five times the
                             ///< rank's longest pause that ended, if that is more
    /// Number of consecutive ranks that form a worker and wait for no other ranks while they train:
    /// a deadlock may be within one worker. 0 = all ranks wait for each other.
    int worker_ranks = 0;
};

/// A rank that is at fault, and why.
struct PeerFault {
    int rank = 0;
    std::string reason;  ///< "no heartbeat for 30 s, last seen in backward of microbatch 3"
};

/// Decides from the beats of ranks whether the job must be ended; the judging rank's own beats may
/// be among them. Its clock is the time during which the judging rank was awake, so a job that is
/// stopped and continued as a whole (Slurm's suspend) is not at fault.
class PeerJudge {
  public:
    /// `ranks` are the ranks to judge.
    PeerJudge(const std::vector<int>& ranks, const PeerLimits& limits);

    void heard(int rank, const Beat& beat);
    /// The connection to the rank broke.
    void lost(int rank);
    /// The rank has said why it ends, and ends the job. The launcher gets PeerLimits::failed
    /// seconds to do so.
    void failed(int rank);
    /// The rank has ended in good order. It is no longer judged, and deadlocks are no longer judged
    /// at all.
    void left(int rank);

    /// Advances the clock by min(seconds, longest) and returns the first fault. `seconds`: time
    /// since the last call.
    std::optional<PeerFault> pass(double seconds, double longest);
    /// Ranks that have sent no beat for at least `seconds`, in order.
    std::vector<int> silent_ranks(double seconds) const;

  private:
    struct Peer {
        int rank = 0;
        Beat last;
        double silent = 0.0;   ///< seconds since the last beat
        double paused = 0.0;   ///< seconds since the last progress
        double longest = 0.0;  ///< longest pause in work on a GPU that ended
        bool closed = false;
        bool failed = false;
    };

    Peer* find(int rank);
    std::optional<PeerFault> fault_of(const Peer& peer) const;
    std::optional<PeerFault> deadlock() const;
    bool is_stuck(const std::vector<Peer>& peers) const;
    std::vector<std::vector<Peer>> workers() const;

    PeerLimits limits_;
    std::vector<Peer> peers_;
    bool all_here_ = true;
};

}  // namespace loratrain
