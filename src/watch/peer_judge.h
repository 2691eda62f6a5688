#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/activity.h"

namespace loratrain {

/// One sign of life.
struct Beat {
    activity::State state;
    std::uint64_t progress = 0;  ///< activity::progress()
};

/// One line of text each; nullopt when a line is not a beat.
std::string to_line(const Beat& beat);
std::optional<Beat> beat_from_line(std::string_view line);

/// After how many seconds something is held to be wrong. 0 = never.
struct PeerLimits {
    double silence = 30.0;   ///< no beat
    double closed = 0.3;     ///< the connection broke; the launcher ends all ranks a second later
    double failed = 5.0;     ///< the connection broke of a rank that has said why it ends
    double deadlock = 60.0;  ///< every rank waits for another and none makes progress
    double device = 60.0;    ///< no progress of a rank that works with its GPU; five times the
                             ///< longest pause it has come through, where that is more
    int worker_ranks = 0;  ///< consecutive ranks that wait for no others while they train, so that
                           ///< a deadlock may be theirs alone; 0 = all wait for each other
};

/// What is wrong with whom.
struct PeerFault {
    int rank = 0;
    std::string reason;  ///< "no sign of life for 30 s, last seen in backward of microbatch 3"
};

/// Decides from the beats of other ranks (and one's own) whether the job must be ended. Its clock
/// is the time that the judging rank itself has been awake: a job that is stopped and continued as
/// a whole (Slurm's suspend) is not at fault.
class PeerJudge {
  public:
    /// `ranks`: those to be judged.
    PeerJudge(const std::vector<int>& ranks, const PeerLimits& limits);

    void heard(int rank, const Beat& beat);
    /// The connection broke.
    void lost(int rank);
    /// The rank says of itself why it ends, and ends the job: the launcher is given time to do so.
    void failed(int rank);
    /// The rank has said goodbye: it is not judged any more, and neither are deadlocks.
    void left(int rank);

    /// `seconds` have passed since the last call; more than `longest` count as that many.
    std::optional<PeerFault> pass(double seconds, double longest);
    /// Of the last `seconds` at least; in order.
    std::vector<int> silent_ranks(double seconds) const;

  private:
    struct Peer {
        int rank = 0;
        Beat last;
        double silent = 0.0;   ///< seconds since the last beat
        double paused = 0.0;   ///< seconds since the last progress
        double longest = 0.0;  ///< pause in work on a GPU that ended
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
