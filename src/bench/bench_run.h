#pragma once

#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/op_timer.h"
#include "bench/bench_case.h"
#include "comm/communicator.h"
#include "train/stage_run.h"

namespace loratrain {

/// What a bench measures: windows, where their time goes, and the GEMM library alone.

/// Tokens of a window on all ranks, and the longest time of a rank from a barrier before the window
/// to a barrier behind it.
struct WindowTime {
    double seconds = 0.0;
    double tokens = 0.0;
    double squares = 0.0;  ///< sum over samples of tokens²
    /// Mean loss of all adapters' targets in each round; on the first rank.
    std::vector<double> losses = {};
};

/// A pipeline that trains a bench case, window by window. Collective.
class BenchRun {
  public:
    /// `observe`: record the times of microbatches.
    BenchRun(const BenchCase& bench_case, const MpiSession& mpi, Communicator& communicator,
             Backend& backend, bool observe = false);

    /// Trains the next `rounds` rounds (optimizer steps of every adapter) as one window, or as one
    /// window per adapter if the policy trains adapters one after another. The time includes
    /// filling and draining the pipeline, not planning.
    WindowTime run(int rounds);
    /// Seconds of the last run in which this rank computed; 0 without `observe`.
    double busy_seconds() const { return busy_seconds_; }
    /// The simulator's prediction of the last run with `costs`.
    double predicted_seconds(const CostModel& costs) const;
    /// The plan's costs refined by the observations of all ranks; none without `observe`.
    /// Collective.
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

/// Where the time of one window went, by rank.
struct BenchProfile {
    int rounds = 0;
    double seconds = 0.0;        ///< of the window, including the timing
    std::vector<OpTimes> ranks;  ///< by rank; a rank is idle for `seconds` - total()
};

/// Runs the warm-up, then a window of --steps rounds, of a new pipeline with every operator timed.
/// Collective; returns all ranks' times on every rank.
BenchProfile profile_window(const CommandLine::Bench& bench, const BenchCase& bench_case,
                            const MpiSession& mpi, Communicator& communicator, Backend& backend);

/// Seconds of the backend's GEMM for all base matrix products of `tokens` tokens: forward and input
/// gradients of the linears of every layer and of the head, without LoRA columns.
double gemm_seconds(const ModelSpec& model, std::int64_t tokens, Backend& backend);

}  // namespace loratrain
