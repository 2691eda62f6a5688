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

/// Shows a person how the run is; called often.
using StatusView = std::function<void(const RunStatus&)>;

/// Least seconds between two of the kind.
struct RecordPace {
    double beat = 3.0;  ///< of status.json
    double view = 0.3;  ///< of the view
};

/// What a run leaves for people to watch it by, besides the log: status.json (the heartbeat, at the
/// pace of beats), results.csv and the event files. A file of these that cannot be written is a
/// warning, once, not the end of the training. Flushed to disk at the end alone: a disk takes as
/// long as some computations. Root rank only.
class RunRecords {
  public:
    /// `view` (may be empty) gets what status.json gets, and more often.
    RunRecords(const Job& job, const Plan& plan, const AdapterTable& adapters, int ranks,
               StatusView view = {}, RecordPace pace = {});

    /// The rows of every adapter that this run begins with (none for a fresh one).
    void start(double elapsed_seconds, const std::vector<std::vector<MetricsRow>>& rows);
    /// An adapter that the run has got since.
    void begin(AdapterId adapter, const std::vector<MetricsRow>& rows);
    /// Rows that have been written to an adapter's metrics.jsonl.
    void add(AdapterId adapter, const std::vector<MetricsRow>& rows);

    void batch_done(const BatchPlan& batch) { trained(batch.tokens, batch.round + 1); }
    /// So many tokens, and so the run has come to a round.
    void trained(std::int64_t tokens, std::int32_t round);
    /// The sum of the tokens that trained() was given.
    std::int64_t tokens() const { return tokens_; }
    /// A sign of life, written when the last one is old enough; to be called often, also where
    /// nothing is done for long. Nothing after end().
    void beat(double elapsed_seconds);
    /// Nothing before start: what the file says is not known.
    void write_results();
    /// The results, and the last status of this process: done, stopped or failed, and why.
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
    Clock::time_point last_tokens_;  ///< when their speed was measured
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
