#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/job.h"
#include "io/run_files/metrics_file.h"

namespace loratrain {

/// TensorBoard event files (logging.tensorboard), one folder and so one "run" per adapter:
/// <run.dir>/tensorboard/<adapter>/events.out.tfevents.<seconds>.<host>.<pid>, with the tags
/// train/{loss, grad_norm, learning_rate, tokens_per_second, epoch} and
/// eval/{loss, perplexity, exact_match}. They repeat metrics.jsonl: a run that continues writes
/// them anew from the lines it kept, so that no step is lost or twice. Root rank only.
class EventLog {
  public:
    /// `elapsed_seconds`: of training at this moment, to which the rows' times refer. `job`
    /// outlives the log and may get more adapters.
    EventLog(const Job& job, double elapsed_seconds);

    /// Begins the adapter's file, replacing what is in its folder.
    void restart(AdapterId adapter, const std::vector<MetricsRow>& rows);
    void append(AdapterId adapter, const std::vector<MetricsRow>& rows);

  private:
    /// "" without logging.tensorboard.
    std::string file_of(AdapterId adapter) const;
    std::string records(AdapterId adapter, const std::vector<MetricsRow>& rows);

    const Job& job_;
    double start_ = 0.0;                   ///< seconds since 1970 at which elapsed_seconds was 0
    double latest_time_ = 0.0;             ///< of a row; rows of evaluations have none of their own
    std::map<AdapterId, double> written_;  ///< the latest time in its file, which never goes back
    std::string file_name_;
};

}  // namespace loratrain
