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
#include "train/search/trial_search.h"

namespace loratrain {

namespace {

std::optional<double> evaluated(double value) {
    return value < 0 ? std::nullopt : std::optional(value);
}

}  // namespace

RunRecords::RunRecords(const Job& job, const Plan& plan, const AdapterTable& adapters, int ranks,
                       StatusView view, RecordPace pace)
    : job_(job),
      plan_(plan),
      adapters_(adapters),
      ranks_(ranks),
      view_(std::move(view)),
      pace_(pace) {}

void RunRecords::guarded(const std::function<void()>& write) {
    const activity::Aside files;
    try {
        write();
    } catch (const std::exception& error) {
        if (!warned_) log::warn(cat("the training goes on, but: ", error.what()));
        warned_ = true;
    }
}

void RunRecords::start(double elapsed_seconds, const std::vector<std::vector<MetricsRow>>& rows) {
    events_ = std::make_unique<EventLog>(job_, elapsed_seconds);
    for (std::size_t i = 0; i < rows.size(); ++i) begin(static_cast<AdapterId>(i), rows[i]);
    last_beat_ = last_tokens_ = last_round_ = Clock::now();
    round_ = adapters_.round();
    write_status(status(elapsed_seconds, "running", ""));
}

void RunRecords::begin(AdapterId adapter, const std::vector<MetricsRow>& rows) {
    for (const MetricsRow& row : rows) summaries_[adapter].add(row);
    guarded([&] { events_->restart(adapter, rows); });
}

void RunRecords::add(AdapterId adapter, const std::vector<MetricsRow>& rows) {
    for (const MetricsRow& row : rows) summaries_[adapter].add(row);
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

void RunRecords::trained(std::int64_t tokens, std::int32_t round) {
    tokens_ += tokens;
    tokens_since_ += tokens;
    rounds_since_ += std::max(0, round - round_);
    round_ = std::max(round_, round);
}

void RunRecords::beat(double elapsed_seconds) {
    if (ended_) return;
    if (seconds_since(last_beat_) >= pace_.beat) {
        measure();
        last_beat_ = Clock::now();
        write_status(status(elapsed_seconds, "running", ""));
    } else if (view_ && seconds_since(last_view_) >= pace_.view) {
        view(status(elapsed_seconds, "running", ""));
    }
}

RunStatus RunRecords::status(double elapsed_seconds, const std::string& how,
                             const std::string& reason) const {
    RunStatus status;
    status.state = how;
    status.reason = reason;
    status.round = std::max(adapters_.round(), round_);
    status.elapsed_seconds = elapsed_seconds;
    status.tokens_per_second = tokens_per_second_.value();
    status.seconds_per_round = seconds_per_round_.value();
    const WorkLeft left = adapters_.work_left();
    if (how == "running" && status.tokens_per_second > 0) {
        status.seconds_left = left.tokens / status.tokens_per_second;
    }
    status.host = host_name();
    status.pid = ::getpid();
    status.ranks = ranks_;
    status.updated = unix_time();
    status.accuracy = accuracy_name(job_.adapters);
    for (const AdapterId adapter : adapters_.all()) {
        const AdapterState& a = adapters_[adapter].state;
        const AdapterJob& job = job_.adapter(adapter);
        const std::int32_t total = plan_.adapters[index(adapter)].total_steps;
        status.adapters.push_back(
            {job.name, status_name(a.status), a.steps, total,
             a.losses.empty() ? std::nullopt : std::optional(a.losses.value()),
             evaluated(a.last_eval_loss), evaluated(a.last_exact_match), job.priority});
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
    guarded([&] { write_file(status_file_name, to_json(status)); });
}

void RunRecords::write_file(const char* name, const std::string& text) {
    const std::string path = cat(job_.run.dir, "/", name);
    if (ended_) {
        write_text_atomic(path, text);
    } else {
        replace_text(path, text);
    }
}

void RunRecords::write_results() {
    if (!events_) return;
    std::vector<AdapterResult> results;
    for (const AdapterId adapter : adapters_.all()) {
        const std::string status = status_name(adapters_[adapter].state.status);
        results.push_back(
            {adapter, ended_ ? status_of_ended(status) : status, summaries_[adapter]});
    }
    if (job_.sweep) {
        for (const TrialEntry& entry : trial_results(job_, adapters_)) {
            results[index(entry.trial)].trial = entry.result;
        }
    }
    sort_results(job_, results);
    guarded([&] { write_file(results_file_name, results_csv(job_, results)); });
}

void RunRecords::end(double elapsed_seconds, const std::string& how, const std::string& reason) {
    ended_ = true;
    measure();
    write_results();
    write_status(status(elapsed_seconds, how, reason));
}

}  // namespace loratrain
