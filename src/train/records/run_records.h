#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/means.h"
#include "io/run_files/status_file.h"
#include "plan/plan.h"
#include "train/adapter_table.h"
#include "train/records/event_log.h"

namespace loratrain {

/// Files and views by which people watch a run.

/// Shows the status of the run to a person. Called often.
using StatusView = std::function<void(const RunStatus&)>;

/// Least seconds between two writes of the same kind.
struct RecordPace {
    double beat = 3.0;  ///< of status.json
    double view = 0.3;  ///< of the StatusView
};

/// Files by which people watch a run, besides the log: status.json (the heartbeat), results.csv and
/// the event files. A file that cannot be written is a warning, once, and does not end the
/// training. Files are flushed to disk only at the end, because a flush can take as long as a
/// computation. Root rank only.
class RunRecords {
  public:
    /// `view` (may be empty) gets what status.json gets, more often.
    RunRecords(const Job& job, const Plan& plan, const AdapterTable& adapters, int ranks,
               StatusView view = {}, RecordPace pace = {});

    /// `rows`: per adapter that the run begins with, its rows so far; none for a fresh adapter.
    void start(double elapsed_seconds, const std::vector<std::vector<MetricsRow>>& rows);
    /// Begins the records of an adapter that was added to the run.
    void begin(AdapterId adapter, const std::vector<MetricsRow>& rows);
    /// Rows that have been written to an adapter's metrics.jsonl.
    void add(AdapterId adapter, const std::vector<MetricsRow>& rows);

    void batch_done(const BatchPlan& batch) { trained(batch.tokens, batch.round + 1); }
    /// Adds `tokens` that were trained, and sets the round that the run has reached.
    void trained(std::int64_t tokens, std::int32_t round);
    /// Sum of the tokens given to trained().
    std::int64_t tokens() const { return tokens_; }
    /// Writes a heartbeat if the last one is old enough. Call often, also while nothing else
    /// happens for long. Does nothing after end().
    void beat(double elapsed_seconds);
    /// Writes results.csv. Does nothing before start(), when the rows in the file are not known.
    void write_results();
    /// Writes the results, and the last status of this process: done, stopped or failed, and why.
    void end(double elapsed_seconds, const std::string& how, const std::string& reason);

  private:
    using Clock = std::chrono::steady_clock;

    RunStatus status(double elapsed_seconds, const std::string& how,
                     const std::string& reason) const;
    void view(const RunStatus& status);
    void write_status(const RunStatus& status);
    void write_file(const char* name, const std::string& text);
    void measure();
    void guarded(const std::function<void()>& write);

    const Job& job_;
    const Plan& plan_;
    const AdapterTable& adapters_;
    int ranks_;
    StatusView view_;
    RecordPace pace_;
    std::map<AdapterId, MetricsSummary> summaries_;
    std::unique_ptr<EventLog> events_;  ///< none before start
    Clock::time_point last_beat_;
    Clock::time_point last_view_;
    Clock::time_point last_tokens_;  ///< when tokens/s were last measured
    Clock::time_point last_round_;
    std::int64_t tokens_ = 0;
    std::int64_t tokens_since_ = 0;
    std::int32_t round_ = 0;  ///< of the run, after the batches so far
    std::int32_t rounds_since_ = 0;
    RecentMean tokens_per_second_;
    RecentMean seconds_per_round_;
    bool ended_ = false;
    bool warned_ = false;
};

}  // namespace loratrain
