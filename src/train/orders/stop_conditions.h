#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// A moment at which the job must be gone; all times are seconds after the start of this process.
struct TimeLimit {
    std::string name;      ///< for the log: "time limit run.max_hours 0.5 h"
    double seconds = 0.0;  ///< positive
};

/// The longest that the work between two decisions took so far; 0 = not known yet.
struct Pace {
    double window_seconds = 0.0;      ///< a window with its evaluations and exports
    double checkpoint_seconds = 0.0;  ///< writing a checkpoint
};

/// Seconds before the limit at which training stops: a window and a checkpoint, at least 60 s, but
/// never more than a tenth of the limit.
double stop_margin(const TimeLimit& limit, const Pace& pace);

/// Seconds until training must stop for the earliest limit (its margin is taken off); at least 0;
/// infinite without limits.
double seconds_left(const std::vector<TimeLimit>& limits, const Pace& pace, double elapsed);

/// The first limit whose time to stop has come.
std::optional<TimeLimit> reached_limit(const std::vector<TimeLimit>& limits, const Pace& pace,
                                       double elapsed);

/// Limits that hold for this start: `max_hours` (0 = none), and Slurm's end of the job, given as
/// the text of SLURM_JOB_END_TIME (seconds since 1970; nullptr or no number = none) and of
/// SLURM_JOB_ID. An end that has passed already is none.
std::vector<TimeLimit> time_limits(double max_hours, const char* slurm_end, const char* slurm_job,
                                   double now);

/// Seconds that mpirun leaves its ranks between SIGTERM and SIGKILL once Ctrl-C has ended it.
/// `ranks` and `timeout`: what Open MPI's OMPI_COMM_WORLD_SIZE and
/// OMPI_MCA_odls_base_sigkill_timeout say in the environment, null = not set; none where no mpirun
/// has started this process.
std::optional<double> launcher_patience(const char* ranks, const char* timeout);

/// Everything that ends training early with exit code 75: a signal to any rank, a file STOP in the
/// run directory, --stop-after, run.max_hours, the end of the Slurm job. Rank 0 asks it between
/// windows and its answer goes for all ranks.
class StopConditions {
  public:
    /// From here time counts.
    StopConditions(const Job& job, std::optional<int> stop_after);

    /// Why to stop now; "" = go on. `signal`: the one that came to any rank, 0 = none. Limits of
    /// time only count once this start has `trained` a window, so that every start gets further.
    std::string reason(int signal, std::int32_t round, bool trained) const;

    /// Removes the file STOP, so that the next start trains.
    void obeyed() const;

    /// Rounds until --stop-after, if it was given.
    std::optional<std::int32_t> rounds_left(std::int32_t round) const;
    /// Seconds until a limit of time asks for a stop; infinite without one.
    double seconds_left() const;

    /// Once it is known that a stop takes longer than the launcher's patience: what to do instead
    /// of Ctrl-C; "" = not known, or said before.
    std::string interrupt_notice();

    void window_took(double seconds);
    void checkpoint_took(double seconds);

  private:
    double elapsed() const;

    std::string stop_file_;
    std::optional<double> patience_;  ///< launcher_patience(), until interrupt_notice() has spoken
    std::optional<int> stop_after_;
    std::vector<TimeLimit> limits_;
    Pace pace_;
    std::chrono::steady_clock::time_point started_;
};

}  // namespace loratrain
