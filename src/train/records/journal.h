#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/system.h"
#include "train/adapter_table.h"
#include "train/pipeline_runner.h"
#include "train/records/metrics.h"
#include "train/records/progress.h"
#include "train/records/run_records.h"

namespace loratrain {

/// Seconds that a run has trained, over all its starts.
class RunClock {
  public:
    /// `before`: those of the starts before this one.
    void continue_from(double before) { before_ = before; }
    double before() const { return before_; }
    double elapsed() const { return before_ + seconds_since(started_); }

  private:
    double before_ = 0.0;
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

class DeviceSampler;

/// Hears of what a worker does, in place of the run's records, which the dispatcher has.
class WorkerReports {
  public:
    virtual ~WorkerReports() = default;
    virtual void trained(std::int64_t tokens, std::int32_t round) = 0;
    virtual void wrote(AdapterId adapter, std::string metrics_line) = 0;
    virtual void report(AdapterId adapter, const AdapterState& state) = 0;
    virtual void look() = 0;
};

/// Writes all records of a run while it trains: metrics.jsonl, lines of progress in the log, and
/// the files of RunRecords. It reads the adapter table, and keeps the times of batches in it. Rank
/// 0 only.
class Journal {
  public:
    /// The arguments must outlive the journal.
    Journal(const Job& job, const Plan& plan, AdapterTable& adapters, const RunClock& clock,
            int ranks, const StatusView& view);

    /// Continues the files of all adapters from the steps that they have taken.
    void start();
    /// On a worker: continues the file of an adapter that the worker gets, from the steps that the
    /// adapter has taken.
    void take_over(AdapterId adapter) { open(adapter); }
    /// Begins the files of adapters that were added to the run.
    void begin(const std::vector<AdapterId>& adapters);

    void stream_started() { progress_.training_resumed(clock_.elapsed()); }
    void window_started(const Window& window) { progress_.window_started(window); }
    /// Lines wait for an evaluation of the adapter after `step`, which is not reported yet.
    void await_evaluation(AdapterId adapter, std::int32_t step) {
        metrics_.await_evaluation(adapter, step);
    }
    /// Lines wait for an evaluation of the adapter, which has taken no step, while other adapters
    /// train.
    void await_first_evaluation(AdapterId adapter) { metrics_.await_first_evaluation(adapter); }
    /// Records an optimizer step. The table must have it already.
    /// `stale`: rollouts that were left out before the batch; none = the line has no such key.
    void batch_done(const BatchResult& result, std::optional<std::int32_t> stale);
    /// Means of the texts that a step to come trains on.
    void note_rollouts(AdapterId adapter, std::int32_t step, const RolloutMeans& means) {
        metrics_.note_rollouts(adapter, step, means);
    }
    /// Records the adapter's last evaluation. The table must have it already. `is_shared`: it was
    /// made for another adapter, under which the log already has it.
    void evaluated(const EvalResult& result, bool is_shared);
    /// Records the details of a step besides its loss (EvalResult::training).
    void record_details(const EvalResult& result);
    /// Records the evaluation before the adapter's first step, which only the table has.
    void start_known(AdapterId adapter);
    void checkpointed() { records_.write_results(); }
    void trials_ended() { records_.write_results(); }

    /// Checks `sampler` with every heartbeat. It must outlive the journal.
    void sample_with(DeviceSampler& sampler) { sampler_ = &sampler; }
    /// On a worker (train/workers/): from now on, everything but the files of its own adapters goes
    /// to `reports`. The ends of adapters are the exception: they are reported by other code, which
    /// has written all files before. `reports` must outlive the journal.
    void report_to(WorkerReports* reports) { reports_ = reports; }
    /// On the dispatcher: records what a worker has done.
    void trained(std::int64_t tokens, std::int32_t round) { records_.trained(tokens, round); }
    /// Tokens of all batches since this start; 0 on a worker, whose dispatcher counts them.
    std::int64_t tokens() const { return records_.tokens(); }
    void wrote(AdapterId adapter, const std::vector<MetricsRow>& rows) {
        records_.add(adapter, rows);
    }

    /// Writes lines of metrics that were held back.
    void flush();
    /// Gives a heartbeat (RunRecords::beat).
    void beat();
    void end(const std::string& how, const std::string& reason) {
        records_.end(clock_.elapsed(), how, reason);
    }

  private:
    std::vector<MetricsRow> open(AdapterId adapter);
    std::set<std::int32_t> rungs_ahead(AdapterId adapter) const;
    StepMetrics metrics_of(const BatchResult& result);

    const Job& job_;
    const Plan& plan_;
    AdapterTable& adapters_;
    const RunClock& clock_;
    MetricsLog metrics_;
    ProgressLog progress_;
    RunRecords records_;
    WorkerReports* reports_ = nullptr;
    DeviceSampler* sampler_ = nullptr;
};

}  // namespace loratrain
