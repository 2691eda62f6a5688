#include "train/progress.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "base/log.h"
#include "base/text.h"
#include "plan/admission.h"

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

ProgressLog::ProgressLog(const Job& job, const Plan& plan) : job_(job), plan_(plan) {
    add_adapters();
}

void ProgressLog::add_adapters() {
    losses_.resize(job_.adapters.size(), -1.0);
    const bool in_turn = most_admitted(job_) == 1;
    total_rounds_ = 0;
    for (const AdapterPlan& adapter : plan_.adapters) {
        total_rounds_ = in_turn ? total_rounds_ + adapter.total_steps
                                : std::max(total_rounds_, adapter.total_steps);
    }
}

void ProgressLog::window_started(const Window& window) {
    if (!round_of_last_line_) round_of_last_line_ = window.first_round;
    for (const BatchPlan& batch : window.batches) ++open_batches_[batch.round];
}

void ProgressLog::training_resumed(double elapsed) {
    time_of_last_line_ += elapsed - time_of_last_batch_;
}

void ProgressLog::batch_done(const BatchPlan& batch, double loss, double elapsed) {
    losses_[index(batch.adapter)] = loss;
    tokens_since_ += batch.tokens;
    time_of_last_batch_ = elapsed;
    if (--open_batches_[batch.round] > 0) return;
    open_batches_.erase(batch.round);
    const std::int32_t done = batch.round + 1;
    if (done % job_.logging.every_steps == 0 || done == total_rounds_) print_round(done, elapsed);
}

void ProgressLog::print_round(std::int32_t round, double elapsed) {
    // Adapters that had to wait take rounds of their own.
    total_rounds_ = std::max(total_rounds_, round);
    std::ostringstream line;
    line << "step " << round << '/' << total_rounds_ << "  loss";
    for (std::size_t i = 0; i < losses_.size() && i < adapters_in_line; ++i) {
        line << "  " << job_.adapters[i].name << ' '
             << (losses_[i] < 0 ? "-" : format_fixed(losses_[i], 4));
    }
    if (losses_.size() > adapters_in_line) {
        line << "  and " << losses_.size() - adapters_in_line << " more";
    }
    const double seconds = elapsed - time_of_last_line_;
    const std::int32_t rounds = std::max(1, round - round_of_last_line_.value_or(0));
    if (seconds > 0) {
        seconds_per_round_.add(seconds / rounds, seconds);
        line << "  " << format_fixed(static_cast<double>(tokens_since_) / seconds, 0)
             << " tokens/s  "
             << human_duration(seconds_per_round_.value() * (total_rounds_ - round)) << " left";
    }
    log::progress(line.str());
    tokens_since_ = 0;
    time_of_last_line_ = elapsed;
    round_of_last_line_ = round;
}

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
    row("adapter", "status", "steps", "train loss", "eval loss", "exact match");
    for (std::size_t i = 0; i < job.adapters.size(); ++i) {
        const AdapterState& a = state.adapters[i];
        row(job.adapters[i].name, status_name(a.status), std::to_string(a.steps),
            format_fixed(a.last_loss, 4), change(a.first_eval_loss, a.last_eval_loss, 4, 1.0, ""),
            change(a.first_exact_match, a.last_exact_match, 1, 100.0, "%"));
    }
    return table.str();
}

}  // namespace loratrain
