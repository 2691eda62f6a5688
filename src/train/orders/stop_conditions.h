#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// Everything that ends training early: time limits, signals, the file STOP.

/// A moment at which the job has to be over. All times are seconds since the start of the process.
struct TimeLimit {
    std::string name;      ///< for the log: "time limit run.max_hours 0.5 h"
    double seconds = 0.0;  ///< positive
};

/// The longest times between two decisions so far, in seconds; 0 = not known yet.
struct Pace {
    double window_seconds = 0.0;      ///< a window with its evaluations and exports
    double checkpoint_seconds = 0.0;  ///< writing a checkpoint
};

/// Seconds before the limit at which training stops: a window and a checkpoint, at least 60 s, at
/// most a tenth of the limit.
double stop_margin(const TimeLimit& limit, const Pace& pace);

/// Seconds until training has to stop for the earliest limit less its margin; at least 0; infinite
/// without limits.
double seconds_left(const std::vector<TimeLimit>& limits, const Pace& pace, double elapsed);

/// The first limit at which training has to stop now.
std::optional<TimeLimit> reached_limit(const std::vector<TimeLimit>& limits, const Pace& pace,
                                       double elapsed);

/// Limits of this start: `max_hours` (0 = none), and Slurm's end of the job. `slurm_end`,
/// `slurm_job`: SLURM_JOB_END_TIME (seconds since 1970; nullptr or no number = none) and
/// SLURM_JOB_ID. An end that has passed counts as none.
std::vector<TimeLimit> time_limits(double max_hours, const char* slurm_end, const char* slurm_job,
                                   double now);

/// Seconds between SIGTERM and SIGKILL that mpirun gives its ranks after Ctrl-C. None if mpirun has
/// not started this process. `ranks`, `timeout`: Open MPI's environment variables
/// OMPI_COMM_WORLD_SIZE and OMPI_MCA_odls_base_sigkill_timeout; null = not set.
std::optional<double> launcher_patience(const char* ranks, const char* timeout);

/// Everything that ends training early with exit code 75: a signal to any rank, a file STOP in the
/// run directory, --stop-after, run.max_hours, the end of the Slurm job. Rank 0 asks between
/// windows, for all ranks.
class StopConditions {
  public:
    /// Time counts from here.
    StopConditions(const Job& job, std::optional<int> stop_after);

    /// Why to stop now; "" = go on. `signal`: the first that came to any rank; 0 = none. Time
    /// limits count only after this start has `trained` a window, so that every start gets further.
    std::string reason(int signal, std::int32_t round, bool trained) const;

    /// Removes the file STOP, so that the next start trains.
    void obeyed() const;

    /// Rounds left by --stop-after; none without it.
    std::optional<std::int32_t> rounds_left(std::int32_t round) const;
    /// Seconds until a time limit asks for a stop; infinite without one.
    double seconds_left() const;

    /// What to do instead of Ctrl-C, if a stop takes longer than the launcher waits; "" if that is
    /// not so, not known, or said before.
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
