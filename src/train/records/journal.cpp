#include "train/records/journal.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/activity.h"
#include "base/log.h"
#include "base/text.h"
#include "io/files.h"
#include "measure/device_sampler.h"
#include "plan/rungs.h"
#include "train/learning_rate.h"

namespace loratrain {

Journal::Journal(const Job& job, const Plan& plan, AdapterTable& adapters, const RunClock& clock,
                 int ranks, const StatusView& view)
    : job_(job),
      plan_(plan),
      adapters_(adapters),
      clock_(clock),
      metrics_(job),
      progress_(job),
      records_(job, plan, adapters, ranks, view) {}

std::vector<MetricsRow> Journal::open(AdapterId adapter) {
    const AdapterState& state = adapters_[adapter].state;
    const std::string dir = job_.run.dir + "/adapters/" + job_.adapter(adapter).name;
    make_directory(dir);
    if (is_unfinished(state.status)) {
        std::filesystem::remove(dir + "/DONE");
        std::filesystem::remove(dir + "/FAILED");
    }
    return metrics_.restore(adapter, is_untouched(state) ? -1 : state.steps, rungs_ahead(adapter));
}

/// Steps at which it was evaluated and judged as a trial, and which it has to take again.
std::set<std::int32_t> Journal::rungs_ahead(AdapterId adapter) const {
    const AdapterState& state = adapters_[adapter].state;
    const std::int32_t total = plan_.adapters[index(adapter)].total_steps;
    std::set<std::int32_t> steps;
    for (int rung = 0; rung < static_cast<int>(state.rungs.size()); ++rung) {
        const std::int32_t step = rung_step(*job_.sweep, total, rung);
        if (step > state.steps) steps.insert(step);
    }
    return steps;
}

void Journal::start() {
    std::vector<std::vector<MetricsRow>> rows;
    for (const AdapterId adapter : adapters_.all()) rows.push_back(open(adapter));
    records_.start(clock_.elapsed(), rows);
}

void Journal::begin(const std::vector<AdapterId>& adapters) {
    for (const AdapterId adapter : adapters) records_.begin(adapter, open(adapter));
}

StepMetrics Journal::metrics_of(const BatchResult& result) {
    const BatchPlan& batch = result.batch;
    const AdapterPlan& plan = plan_.adapters[index(batch.adapter)];
    AdapterRun& row = adapters_[batch.adapter];
    StepMetrics metrics;
    metrics.step = batch.step + 1;
    metrics.epoch = static_cast<double>(batch.step + 1) / plan.steps_per_epoch;
    metrics.loss = row.state.last_loss;
    metrics.grad_norm = std::sqrt(result.grad_sumsq);
    metrics.learning_rate =
        learning_rate(job_.adapter(batch.adapter), plan.total_steps, batch.step);
    metrics.target_tokens = batch.targets;
    metrics.tokens = batch.tokens;
    metrics.elapsed_seconds = clock_.elapsed();
    const double seconds = metrics.elapsed_seconds - std::max(row.last_batch_time, clock_.before());
    metrics.tokens_per_second = static_cast<double>(batch.tokens) / std::max(seconds, 1e-9);
    row.last_batch_time = metrics.elapsed_seconds;
    return metrics;
}

void Journal::batch_done(const BatchResult& result, std::optional<std::int32_t> stale) {
    StepMetrics metrics = metrics_of(result);
    metrics.stale_rollouts = stale;
    metrics_.record(result.batch.adapter, metrics);
    progress_.batch_done(result.batch, metrics.loss, metrics.elapsed_seconds,
                         adapters_.work_left());
    if (reports_ != nullptr) {
        reports_->trained(result.batch.tokens, result.batch.round + 1);
    } else {
        records_.batch_done(result.batch);
    }
    beat();
}

void Journal::evaluated(const EvalResult& result, bool is_shared) {
    const AdapterJob& adapter = job_.adapter(result.adapter);
    const AdapterState& state = adapters_[result.adapter].state;
    std::string text = cat("evaluated ", adapter.name, " at step ", result.step, ": loss ",
                           format_fixed(state.last_eval_loss, 4));
    if (adapter.loss.has_rewards()) {
        const RewardMeans means = means_of(result.rewards);
        metrics_.record_evaluation(result.adapter, result.step, state.last_eval_loss, means,
                                   result.files);
        const std::string more =
            adapter.loss.is_of_pairs()
                ? cat("reward accuracy ", format_fixed(100.0 * means.accuracies, 1), "%")
                : cat("KL ", format_fixed(means.kl, 4));
        text += cat(", ", more, ", margin ", format_fixed(means.margin(), 4));
    } else {
        metrics_.record_evaluation(result.adapter, result.step, state.last_eval_loss,
                                   state.last_exact_match, result.files);
        text += cat(", perplexity ", format_fixed(std::exp(state.last_eval_loss), 2),
                    ", exact match ", format_fixed(100.0 * state.last_exact_match, 1), "%");
    }
    if (!is_shared) log::info(text);
}

void Journal::record_details(const EvalResult& result) {
    metrics_.record_details(result.adapter, result.step, means_of(result.rewards), result.files);
}

void Journal::start_known(AdapterId adapter) {
    const AdapterState& state = adapters_[adapter].state;
    if (job_.adapter(adapter).loss.has_rewards()) return;  // rewards are not known
    metrics_.record_evaluation(adapter, 0, state.last_eval_loss, state.last_exact_match);
}

void Journal::flush() {
    const activity::Aside files;
    if (reports_ != nullptr) {
        const auto written = metrics_.flush(
            [this](AdapterId adapter, const std::string& line) { reports_->wrote(adapter, line); });
        for (const auto& [adapter, rows] : written) {
            const AdapterState& state = adapters_[adapter].state;
            if (is_unfinished(state.status)) reports_->report(adapter, state);
        }
    } else {
        for (const auto& [adapter, rows] : metrics_.flush()) records_.add(adapter, rows);
    }
    beat();
}

void Journal::beat() {
    if (sampler_ != nullptr) sampler_->look();
    if (reports_ != nullptr) return reports_->look();
    records_.beat(clock_.elapsed());
}

}  // namespace loratrain
