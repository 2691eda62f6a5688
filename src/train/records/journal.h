#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "train/adapter_table.h"
#include "train/pipeline_runner.h"
#include "train/records/metrics.h"
#include "train/records/progress.h"
#include "train/records/run_records.h"
#include "train/run_clock.h"

namespace loratrain {

class DeviceSampler;
class DispatcherLink;

/// All that a run writes down while it trains: metrics.jsonl, the log's lines of progress, and what
/// RunRecords leaves. It reads the adapter table, in which it keeps the times of batches. Rank 0
/// only.
class Journal {
  public:
    /// The arguments outlive it.
    Journal(const Job& job, const Plan& plan, AdapterTable& adapters, const RunClock& clock,
            int ranks, const StatusView& view);

    /// Goes on with the files of all adapters from the steps they have taken.
    void start();
    /// Of a worker: it goes on with the file of an adapter that it gets, from the steps taken.
    void take_over(AdapterId adapter) { open(adapter); }
    /// Adapters that the run has got since.
    void begin(const std::vector<AdapterId>& adapters);

    void stream_started() { progress_.training_resumed(clock_.elapsed()); }
    void window_started(const Window& window) { progress_.window_started(window); }
    /// The adapter will be evaluated after a step that has not been reported.
    void await_evaluation(AdapterId adapter, std::int32_t step) {
        metrics_.await_evaluation(adapter, step);
    }
    /// The adapter, which has taken no step, is evaluated while others train.
    void await_first_evaluation(AdapterId adapter) { metrics_.await_first_evaluation(adapter); }
    /// An optimizer step, after the table has taken it in.
    void batch_done(const BatchResult& result);
    /// The adapter's last evaluation, which the table has taken in; `is_shared`: it was made for
    /// another adapter, which the log has it of.
    void evaluated(const EvalResult& result, bool is_shared);
    /// The details of a step beside its loss (EvalResult::training).
    void record_details(const EvalResult& result);
    /// The evaluation before its first step, of which the table alone knows.
    void start_known(AdapterId adapter);
    void checkpointed() { records_.write_results(); }
    void trials_ended() { records_.write_results(); }

    /// The sampler is looked after with every sign of life; it outlives the journal.
    void sample_with(DeviceSampler& sampler) { sampler_ = &sampler; }
    /// Of a worker (train/workers/): from now on what others than its adapters' own files tell of
    /// goes to the dispatcher, but no ends: who tells of these has written all files before.
    /// Outlives the journal.
    void report_to(DispatcherLink* dispatcher) { dispatcher_ = dispatcher; }
    /// Of the dispatcher: what a worker has done.
    void trained(std::int64_t tokens, std::int32_t round) { records_.trained(tokens, round); }
    /// Of all batches in this start; of a worker, whose dispatcher counts them, 0.
    std::int64_t tokens() const { return records_.tokens(); }
    void wrote(AdapterId adapter, const std::vector<MetricsRow>& rows) {
        records_.add(adapter, rows);
    }

    /// Writes metrics that are held back.
    void flush();
    /// A sign of life (RunRecords::beat).
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
    DispatcherLink* dispatcher_ = nullptr;
    DeviceSampler* sampler_ = nullptr;
};

}  // namespace loratrain
