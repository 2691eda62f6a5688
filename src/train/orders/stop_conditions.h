#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job.h"
#include "train/orders/time_limit.h"

namespace loratrain {

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
