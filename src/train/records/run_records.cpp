#include "train/records/run_records.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "io/files.h"
#include "io/run_files/results_file.h"

namespace loratrain {

namespace {

std::optional<double> evaluated(double value) {
    return value < 0 ? std::nullopt : std::optional(value);
}

}  // namespace

RunRecords::RunRecords(const Job& job, const Plan& plan, const WorkCounter& work, int ranks,
                       StatusView view, RecordPace pace)
    : job_(job),
      plan_(plan),
      work_(work),
      ranks_(ranks),
      view_(std::move(view)),
      pace_(pace),
      summaries_(job.adapters.size()) {}

void RunRecords::guarded(const std::function<void()>& write) {
    const activity::OffDevice files;
    try {
        write();
    } catch (const std::exception& error) {
        if (!warned_) log::warn(cat("the training goes on, but: ", error.what()));
        warned_ = true;
    }
}

void RunRecords::start(const RunState& state, double elapsed_seconds,
                       const std::vector<std::vector<MetricsRow>>& rows) {
    events_ = std::make_unique<EventLog>(job_, elapsed_seconds);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        for (const MetricsRow& row : rows[i]) summaries_[i].add(row);
        guarded([&] { events_->restart(static_cast<AdapterId>(i), rows[i]); });
    }
    last_beat_ = last_tokens_ = last_round_ = Clock::now();
    round_ = state.round;
    write_status(status(state, elapsed_seconds, "running", ""));
}

void RunRecords::add(AdapterId adapter, const std::vector<MetricsRow>& rows) {
    for (const MetricsRow& row : rows) summaries_[index(adapter)].add(row);
    guarded([&] { events_->append(adapter, rows); });
}

void RunRecords::measure() {
    if (rounds_since_ > 0) {
        const double seconds = seconds_since(last_round_);
        seconds_per_round_.add(seconds / rounds_since_, seconds);
        rounds_since_ = 0;
        last_round_ = Clock::now();
    }
    if (tokens_since_ > 0) {
        const double seconds = seconds_since(last_tokens_);
        tokens_per_second_.add(static_cast<double>(tokens_since_) / seconds, seconds);
        tokens_since_ = 0;
        last_tokens_ = Clock::now();
    }
}

void RunRecords::add_adapters() {
    const std::size_t known = summaries_.size();
    summaries_.resize(job_.adapters.size());
    if (!events_) return;
    events_->add_adapters();
    for (std::size_t i = known; i < summaries_.size(); ++i) {
        guarded([&] { events_->restart(static_cast<AdapterId>(i), {}); });
    }
}

void RunRecords::batch_done(const BatchPlan& batch) {
    tokens_since_ += batch.tokens;
    rounds_since_ += std::max(0, batch.round + 1 - round_);
    round_ = std::max(round_, batch.round + 1);
}

void RunRecords::beat(const RunState& state, double elapsed_seconds) {
    if (seconds_since(last_beat_) >= pace_.beat) {
        measure();
        last_beat_ = Clock::now();
        write_status(status(state, elapsed_seconds, "running", ""));
    } else if (view_ && seconds_since(last_view_) >= pace_.view) {
        view(status(state, elapsed_seconds, "running", ""));
    }
}

RunStatus RunRecords::status(const RunState& state, double elapsed_seconds, const std::string& how,
                             const std::string& reason) const {
    RunStatus status;
    status.state = how;
    status.reason = reason;
    status.round = std::max(state.round, round_);
    status.elapsed_seconds = elapsed_seconds;
    status.tokens_per_second = tokens_per_second_.value();
    status.seconds_per_round = seconds_per_round_.value();
    const WorkLeft left = work_.left(state);
    if (how == "running" && status.tokens_per_second > 0) {
        status.seconds_left = left.tokens / status.tokens_per_second;
    }
    status.host = host_name();
    status.pid = ::getpid();
    status.ranks = ranks_;
    status.updated = unix_time();
    for (std::size_t i = 0; i < state.adapters.size(); ++i) {
        const AdapterState& a = state.adapters[i];
        const std::int32_t total = plan_.adapters[i].total_steps;
        status.adapters.push_back({job_.adapters[i].name, status_name(a.status), a.steps, total,
                                   a.steps > 0 ? std::optional(a.last_loss) : std::nullopt,
                                   evaluated(a.last_eval_loss), evaluated(a.last_exact_match),
                                   job_.adapters[i].priority});
    }
    status.rounds = status.round + left.rounds;
    return status;
}

void RunRecords::view(const RunStatus& status) {
    if (view_) view_(status);
    last_view_ = Clock::now();
}

void RunRecords::write_status(const RunStatus& status) {
    view(status);
    guarded([&] { write_text_atomic(job_.run.dir + "/" + status_file_name, to_json(status)); });
}

void RunRecords::write_results(const RunState& state) {
    if (!events_) return;
    std::vector<AdapterResult> results;
    for (std::size_t i = 0; i < summaries_.size(); ++i) {
        results.push_back(
            {static_cast<AdapterId>(i), status_name(state.adapters[i].status), summaries_[i]});
    }
    sort_results(results);
    guarded([&] {
        write_text_atomic(job_.run.dir + "/" + results_file_name, results_csv(job_, results));
    });
}

void RunRecords::end(const RunState& state, double elapsed_seconds, const std::string& how,
                     const std::string& reason) {
    measure();
    write_results(state);
    write_status(status(state, elapsed_seconds, how, reason));
}

}  // namespace loratrain
