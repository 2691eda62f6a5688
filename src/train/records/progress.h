#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/means.h"
#include "plan/plan.h"
#include "train/adapter_table.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// Progress in the log: one line per logging interval with round, loss of each adapter that
/// trained, tokens/s and time left. Root only.
class ProgressLog {
  public:
    /// `job` outlives the log and may get more adapters.
    explicit ProgressLog(const Job& job) : job_(job) {}

    /// A batch has ended; prints a line once its whole round has. `left`: remaining work.
    void batch_done(const BatchPlan& batch, double loss, double elapsed, const WorkLeft& left);
    void window_started(const Window& window);
    /// Training continues after something else (loading, evaluation, a checkpoint), whose time does
    /// not count. `elapsed`: as in batch_done().
    void training_resumed(double elapsed);

    /// The closing table: per adapter steps, mean loss of the last steps (LastMean), evaluation
    /// before and after, status.
    static std::string closing_table(const Job& job, const RunState& state);

  private:
    void print_round(std::int32_t round, double elapsed, const WorkLeft& left);

    const Job& job_;
    std::map<std::int32_t, std::int32_t> open_batches_;  ///< per round under way
    std::map<AdapterId, double> losses_;                 ///< of the last batch since the last line
    std::int64_t tokens_since_ = 0;
    double time_of_last_line_ = 0.0;
    double time_of_last_batch_ = 0.0;
    RecentMean tokens_per_second_;
};

}  // namespace loratrain
