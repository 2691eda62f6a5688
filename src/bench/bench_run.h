#pragma once

#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/op_timer.h"
#include "bench/bench_case.h"
#include "comm/communicator.h"
#include "train/stage_run.h"

namespace loratrain {

/// Tokens trained on by all ranks, and the longest that one of them took from a barrier before to
/// a barrier after.
struct WindowTime {
    double seconds = 0.0;
    double tokens = 0.0;
    double squares = 0.0;  ///< sum over samples of tokens²
    /// Of each round the mean loss of the targets, all adapters'; on the first rank.
    std::vector<double> losses = {};
};

/// A pipeline that trains a bench case, window by window. Collective.
class BenchRun {
  public:
    /// `observe`: record what microbatches take.
    BenchRun(const BenchCase& bench_case, const MpiSession& mpi, Communicator& communicator,
             Backend& backend, bool observe = false);

    /// The next `rounds` rounds (optimizer steps of every adapter) as one window, or as one window
    /// per adapter where the policy trains one adapter after another. Planning is not in the time;
    /// filling and draining the pipeline is.
    WindowTime run(int rounds);
    /// Seconds of the last run in which this rank computed; 0 without `observe`.
    double busy_seconds() const { return busy_seconds_; }
    /// What the simulator makes of the last run, by some costs.
    double predicted_seconds(const CostModel& costs) const;
    /// The plan's costs refined by what all ranks have observed; none without. Collective.
    std::optional<CostModel> refined_costs();

  private:
    std::vector<Window> next_windows(int rounds);

    const BenchCase& case_;
    const MpiSession& mpi_;
    Backend& backend_;
    StageRun run_;
    std::vector<Window> windows_;
    int done_ = 0;
    double busy_seconds_ = 0.0;
};

}  // namespace loratrain
