#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/job.h"
#include "io/run_files/metrics_file.h"

namespace loratrain {

/// TensorBoard event files (logging.tensorboard). Each adapter has a folder, which TensorBoard
/// shows as a run: <run.dir>/tensorboard/<adapter>/events.out.tfevents.<seconds>.<host>.<pid>.
/// Tags: train/{loss, grad_norm, learning_rate, tokens_per_second, epoch} and eval/{loss,
/// perplexity, exact_match}. The values are the values of metrics.jsonl. A run that continues
/// writes the files again from the lines that it has kept, so that no step is lost or doubled. Root
/// rank only.
class EventLog {
  public:
    /// `elapsed_seconds`: training time now, on the scale of the rows' times. `job` outlives the
    /// log and may get more adapters.
    EventLog(const Job& job, double elapsed_seconds);

    /// Begins the adapter's file, and replaces the contents of its folder.
    void restart(AdapterId adapter, const std::vector<MetricsRow>& rows);
    void append(AdapterId adapter, const std::vector<MetricsRow>& rows);

  private:
    /// "" without logging.tensorboard.
    std::string file_of(AdapterId adapter) const;
    std::string records(AdapterId adapter, const std::vector<MetricsRow>& rows);

    const Job& job_;
    double start_ = 0.0;                   ///< seconds since 1970 at which elapsed_seconds was 0
    double latest_time_ = 0.0;             ///< of a step's row; rows of evaluations have no time
    std::map<AdapterId, double> written_;  ///< latest time in the file; it never goes back
    std::string file_name_;
};

}  // namespace loratrain
