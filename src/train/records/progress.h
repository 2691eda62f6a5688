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

/// One log line per logging interval: round, loss of each adapter that trained in it, tokens/s,
/// time left. Root only.
class ProgressLog {
  public:
    /// `job` outlives the log and may get more adapters.
    explicit ProgressLog(const Job& job) : job_(job) {}

    /// A batch is through, with so much to go; prints when its whole round is.
    void batch_done(const BatchPlan& batch, double loss, double elapsed, const WorkLeft& left);
    void window_started(const Window& window);
    /// Training goes on after something else (loading, evaluation, a checkpoint), whose time is not
    /// counted; `elapsed` as with batch_done.
    void training_resumed(double elapsed);

    /// The closing table: steps, mean loss of the last ones (LastMean), evaluation before and
    /// after, status.
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
