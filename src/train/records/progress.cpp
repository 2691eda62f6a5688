#include "train/records/progress.h"

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "io/run_files/results_file.h"
#include "io/run_files/status_file.h"

namespace loratrain {

namespace {

constexpr std::size_t adapters_in_line = 8;

std::string change(double before, double after, int decimals, double factor, const char* unit) {
    if (after < 0) return "-";
    std::string now = format_fixed(after * factor, decimals) + unit;
    if (before < 0) return now;
    return format_fixed(before * factor, decimals) + unit + " -> " + now;
}

}  // namespace

void ProgressLog::window_started(const Window& window) {
    for (const BatchPlan& batch : window.batches) {
        if (!batch.evaluation) ++open_batches_[batch.round];
    }
}

void ProgressLog::training_resumed(double elapsed) {
    time_of_last_line_ += elapsed - time_of_last_batch_;
}

void ProgressLog::batch_done(const BatchPlan& batch, double loss, double elapsed,
                             const WorkLeft& left) {
    losses_[batch.adapter] = loss;
    tokens_since_ += batch.tokens;
    time_of_last_batch_ = elapsed;
    if (--open_batches_[batch.round] > 0) return;
    open_batches_.erase(batch.round);
    const std::int32_t done = batch.round + 1;
    if (done % job_.logging.every_steps == 0 || left.rounds == 0) print_round(done, elapsed, left);
}

void ProgressLog::print_round(std::int32_t round, double elapsed, const WorkLeft& left) {
    std::ostringstream line;
    line << "round " << round << '/' << round + left.rounds << "  loss";
    std::size_t shown = 0;
    for (const auto& [adapter, loss] : losses_) {
        if (shown++ == adapters_in_line) break;
        line << "  " << job_.adapter(adapter).name << ' ' << format_fixed(loss, 4);
    }
    if (losses_.size() > adapters_in_line) {
        line << "  and " << losses_.size() - adapters_in_line << " more";
    }
    losses_.clear();
    const double seconds = elapsed - time_of_last_line_;
    if (seconds > 0 && tokens_since_ > 0) {
        const double speed = static_cast<double>(tokens_since_) / seconds;
        tokens_per_second_.add(speed, seconds);
        line << "  " << format_fixed(speed, 0) << " tokens/s  "
             << human_duration(left.tokens / tokens_per_second_.value()) << " left";
    }
    log::progress(line.str());
    tokens_since_ = 0;
    time_of_last_line_ = elapsed;
}

namespace {

constexpr std::size_t most_rows = 64;  ///< of closing_table()

int place_in_table(AdapterStatus status) {
    switch (status) {
        case AdapterStatus::failed:
            return 0;
        case AdapterStatus::done:
            return 2;
        case AdapterStatus::pruned:
            return 3;
        default:
            return 1;
    }
}

/// Adapters in the order of the job; of more than a table has room for, first those that failed,
/// then others that are not done.
std::vector<std::size_t> rows_of_table(const RunState& state) {
    std::vector<std::size_t> rows(state.adapters.size());
    std::iota(rows.begin(), rows.end(), std::size_t{0});
    if (rows.size() <= most_rows) return rows;
    std::stable_sort(rows.begin(), rows.end(), [&](std::size_t a, std::size_t b) {
        return place_in_table(state.adapters[a].status) < place_in_table(state.adapters[b].status);
    });
    rows.resize(most_rows);
    return rows;
}

}  // namespace

std::string ProgressLog::closing_table(const Job& job, const RunState& state) {
    std::size_t widest = 7;
    for (const AdapterJob& adapter : job.adapters) widest = std::max(widest, adapter.name.size());
    std::ostringstream table;
    auto row = [&](const std::string& name, const std::string& status, const std::string& steps,
                   const std::string& loss, const std::string& eval, const std::string& exact) {
        table << "  " << std::left << std::setw(static_cast<int>(widest) + 2) << name
              << std::setw(15) << status << std::right << std::setw(6) << steps << std::setw(12)
              << loss << std::setw(20) << eval << std::setw(20) << exact << '\n';
    };
    row("adapter", "status", "steps", "train loss", "eval loss", accuracy_name(job.adapters));
    for (const std::size_t i : rows_of_table(state)) {
        const AdapterState& a = state.adapters[i];
        row(job.adapters[i].name, status_of_ended(status_name(a.status)), std::to_string(a.steps),
            format_fixed(a.losses.value(), 4),
            change(a.first_eval_loss, a.last_eval_loss, 4, 1.0, ""),
            change(a.first_exact_match, a.last_exact_match, 1, 100.0, "%"));
    }
    if (job.adapters.size() > most_rows) {
        table << "  and " << job.adapters.size() - most_rows << " more: " << job.run.dir << '/'
              << results_file_name << '\n';
    }
    return table.str();
}

}  // namespace loratrain
