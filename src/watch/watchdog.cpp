#include "watch/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "comm/collective.h"
#include "comm/star_network.h"
#include "watch/peer_judge.h"
#include "watch/solo_watch.h"

namespace loratrain {

namespace {

constexpr double longest_interval = 2.0;
constexpr double beats_per_timeout = 4.0;
/// Longer than a launcher takes to end a job.
constexpr double turn_seconds = 4.0;
constexpr double shortest_device_limit = 60.0;
constexpr double time_to_obey = 5.0;
constexpr unsigned time_to_abort = 10;
/// For mpirun to notice that a host is gone (scripts/mpi_environment.sh). After an abort it would
/// wait for that host to acknowledge it, until TCP gives up. Slurm waits for no longer than its
/// KillWait.
constexpr double time_to_notice = 20.0;
constexpr const char* slurm_task_starter = "slurmstepd";
constexpr const char* farewell = "bye";
constexpr const char* end_word = "end";
constexpr const char* failure_word = "failed";

/// Ranks other than 0 judge rank 0 one after another, so that only one says why: those of its host
/// first, and soon one of every other host, as a host may fail as a whole.
int turn_of(const MpiSession& mpi) {
    if (mpi.host() == mpi.hosts().front()) return mpi.local_rank() - 1;
    std::set<std::string> others(mpi.hosts().begin(), mpi.hosts().begin() + mpi.rank());
    others.erase(mpi.host());
    return static_cast<int>(others.size()) + mpi.local_rank();
}

/// `all`: every rank is watched.
PeerLimits limits_for(const MpiSession& mpi, double timeout, bool all, int worker_ranks) {
    PeerLimits limits;
    limits.worker_ranks = worker_ranks;
    limits.silence = timeout;
    limits.deadlock = all ? 2.0 * timeout : 0.0;
    limits.device = std::max(shortest_device_limit, 2.0 * timeout);
    if (mpi.is_root()) return limits;
    const double turn = turn_seconds * turn_of(mpi);
    limits.silence += turn;
    limits.closed += turn;
    limits.failed += turn;
    limits.deadlock = 0.0;
    limits.device = 0.0;
    return limits;
}

std::vector<int> judged_ranks(const MpiSession& mpi, const std::vector<int>& connected) {
    std::vector<int> ranks{0};
    if (mpi.is_root()) ranks.insert(ranks.end(), connected.begin(), connected.end());
    return ranks;
}

/// "rank 3 (host a), rank 4 (host b)" of those without a connection.
std::string unreached(const MpiSession& mpi, const std::vector<int>& connected) {
    std::vector<std::string> names;
    for (int rank = 1; rank < mpi.size(); ++rank) {
        if (std::find(connected.begin(), connected.end(), rank) != connected.end()) continue;
        names.push_back(cat("rank ", rank, " (", mpi.hosts()[static_cast<std::size_t>(rank)], ")"));
    }
    return join(names, ", ");
}

}  // namespace

/// All but the constructor and dismiss() runs on the network's thread.
class Watchdog::Guard {
  public:
    Guard(const MpiSession& mpi, double timeout, int worker_ranks)
        : mpi_(mpi),
          timeout_(timeout),
          interval_(std::min(longest_interval, timeout / beats_per_timeout)),
          network_(mpi) {
        const std::vector<int>& connected = network_.connected();
        const bool all = static_cast<int>(connected.size()) + 1 == mpi.size();
        judge_.emplace(judged_ranks(mpi, connected), limits_for(mpi, timeout, all, worker_ranks));
        warn_of_unreached();
        StarEvents events;
        events.received = [this](int rank, std::string_view line) { received(rank, line); };
        events.lost = [this](int rank) { lost(rank); };
        events.ticked = [this](double seconds) { ticked(seconds); };
        network_.start(std::move(events), interval_, farewell);
        MpiSession::before_abort([this] { network_.last_words(failure_word); });
    }

    ~Guard() { MpiSession::before_abort({}); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    void dismiss() { dismissed_ = true; }

  private:
    void warn_of_unreached() const {
        const std::string names = unreached(mpi_, network_.connected());
        if (!mpi_.is_root() || names.empty()) return;
        log::warn(cat("no TCP connection to rank 0 (", mpi_.host(), ") from ", names,
                      " (a firewall?): training goes on, but it will hang if these stop; open the "
                      "TCP ports between the hosts"));
    }

    void received(int rank, std::string_view line) {
        if (line == end_word) {
            condemned_ = true;
        } else if (line == farewell) {
            judge_->left(rank);
        } else if (line == failure_word) {
            judge_->failed(rank);
        } else if (const std::optional<Beat> beat = beat_from_line(line)) {
            judge_->heard(rank, *beat);
        }
    }

    void lost(int rank) { judge_->lost(rank); }

    void ticked(double seconds) {
        const Beat mine{activity::now(), activity::progress()};
        network_.send(to_line(mine));
        if (mpi_.is_root()) judge_->heard(0, mine);
        const std::optional<PeerFault> fault = judge_->pass(seconds, 2.0 * interval_);
        if (dismissed_) return;
        if (condemned_) {
            condemned_for_ += seconds;
            if (condemned_for_ > time_to_obey) std::_Exit(static_cast<int>(ExitCode::error));
        } else if (lost_for_) {
            await_launcher(seconds);
        } else if (fault) {
            end_job(*fault);
        }
    }

    bool all_silent(const std::string& host) const {
        const std::vector<int> silent = judge_->silent_ranks(timeout_ / 2);
        const auto silent_there = std::count_if(silent.begin(), silent.end(), [&](int rank) {
            return mpi_.hosts()[static_cast<std::size_t>(rank)] == host;
        });
        return silent_there == std::count(mpi_.hosts().begin(), mpi_.hosts().end(), host);
    }

    void say(const PeerFault& fault, const std::string& more = "") const {
        log::error(to_string(Problem{
            cat("rank ", fault.rank, " on host ",
                mpi_.hosts()[static_cast<std::size_t>(fault.rank)]),
            cat(fault.reason, more),
            "the job is ended; see what happened there (killed, out of memory, stopped, network). "
            "The same command continues from the last checkpoint; run.peer_timeout says how many "
            "seconds a rank may be silent"}));
    }

    /// Beats for the ranks that are there until the launcher has noticed, or had the time for it.
    void await_launcher(double seconds) {
        *lost_for_ += seconds;
        if (*lost_for_ <= time_to_notice) return;
        alarm(time_to_abort);
        if (!mpi_.is_root()) say(*fault_);
        MpiSession::abort(static_cast<int>(ExitCode::error));
    }

    void end_job(const PeerFault& fault) {
        const std::string& host = mpi_.hosts()[static_cast<std::size_t>(fault.rank)];
        // The main thread may hold whatever the calls below need: the alarm ends the process then.
        std::signal(SIGALRM, SIG_DFL);
        MpiSession::before_abort({});
        // Ranks other than 0 know nothing of the others on its host; and what they print goes
        // there.
        if (host != mpi_.host() && (!mpi_.is_root() || all_silent(host))) {
            fault_ = fault;
            const bool by_slurm = mpi_.is_root() && parent_name() == slurm_task_starter;
            lost_for_ = by_slurm ? time_to_notice : 0.0;
            if (mpi_.is_root()) {
                say(fault, cat("; all ranks on ", host, " are silent: that host, or the network ",
                               "between it and ", mpi_.host()));
            }
            return;
        }
        alarm(time_to_abort);
        network_.send(end_word);
        say(fault);
        MpiSession::abort(static_cast<int>(ExitCode::error));
    }

    const MpiSession& mpi_;
    double timeout_;
    double interval_;
    std::optional<PeerJudge> judge_;
    std::atomic<bool> dismissed_{false};
    bool condemned_ = false;
    double condemned_for_ = 0.0;
    std::optional<double> lost_for_;  ///< seconds since a whole host fell silent
    std::optional<PeerFault> fault_;  ///< of then
    StarNetwork network_;             ///< last: its thread uses all of the above
};

Watchdog::Watchdog(const MpiSession& mpi, double timeout, int worker_ranks) : mpi_(mpi) {
    if (mpi.size() > 1 && timeout > 0) guard_ = std::make_unique<Guard>(mpi, timeout, worker_ranks);
    solo_watch::end();
}

Watchdog::~Watchdog() = default;

void Watchdog::dismiss() {
    if (!guard_) return;
    guard_->dismiss();
    barrier(mpi_);
}

}  // namespace loratrain
