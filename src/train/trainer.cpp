#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "comm/collective.h"
#include "io/adapters/adapter_file.h"
#include "io/files.h"
#include "measure/measured_trace.h"
#include "plan/replica_view.h"
#include "plan/text/window_text.h"
#include "train/early_stopping.h"
#include "train/orders/stop_request.h"
#include "train/records/best_adapter.h"

namespace loratrain {

namespace {

std::vector<AdapterId> adapters_from_text(const std::string& text) {
    std::istringstream numbers(text);
    std::vector<AdapterId> adapters;
    for (std::int32_t a = 0; numbers >> a;) adapters.push_back(AdapterId{a});
    return adapters;
}

std::string eval_sums_text(const std::vector<EvalSums>& sums) {
    std::string text;
    for (const EvalSums& s : sums) {
        text += cat(format_exact(s.loss_sum), " ", s.exact_samples, " ", s.samples, "\n");
    }
    return text;
}

std::vector<EvalSums> eval_sums_from_text(const std::string& text) {
    std::istringstream lines(text);
    std::vector<EvalSums> sums;
    std::string loss;  // streams do not read "nan" as a number
    for (EvalSums s; lines >> loss >> s.exact_samples >> s.samples;) {
        s.loss_sum = std::stod(loss);
        sums.push_back(s);
    }
    return sums;
}

}  // namespace

Trainer::Trainer(const TrainerParts& parts)
    : parts_(parts),
      channel_(parts.mpi),
      metrics_(parts.job),
      work_(parts.job, parts.plan, parts.datasets),
      progress_(parts.job),
      records_(parts.job, parts.plan, work_, parts.mpi.size(), parts.view),
      makespan_(parts.job, parts.plan),
      started_(std::chrono::steady_clock::now()),
      last_checkpoint_(started_),
      last_batch_time_(parts.job.adapters.size(), 0.0),
      released_(parts.job.adapters.size(), false) {
    state_.adapters.resize(parts.job.adapters.size());
}

void Trainer::restore(const RunState& state, bool set_back) {
    state_ = state;
    set_back_ = set_back;
    seconds_before_ = state.elapsed_seconds;
    fresh_ = false;
    for (std::size_t i = 0; i < state_.adapters.size(); ++i) {
        AdapterState& adapter = state_.adapters[i];
        const bool more = adapter.steps < parts_.plan.adapters[i].total_steps;
        if (adapter.status == AdapterStatus::done && more) adapter.status = AdapterStatus::running;
    }
}

ExitCode Trainer::run() {
    try {
        stop_signal_ = stop_signal_of_any_rank(parts_.mpi);
        return parts_.mpi.is_root() ? conduct() : follow();
    } catch (const std::exception& error) {
        log::error(cat("on host ", parts_.mpi.host(), ", ", to_string(activity::now()), ": ",
                       error.what(), "; the same command continues from the last checkpoint"));
        if (parts_.mpi.is_root()) records_.end(state_, elapsed(), "failed", error.what());
        MpiSession::abort(static_cast<int>(ExitCode::error));
    }
}

ExitCode Trainer::follow() {
    for (;;) {
        activity::begin(activity::Task::follow);
        const std::string text = channel_.next([this] { report_signal(); });
        const auto directive = static_cast<Directive>(text.front());
        const std::string argument = text.substr(1);
        if (directive == Directive::finish) return static_cast<ExitCode>(std::stoi(argument));
        perform(directive, argument);
    }
}

void Trainer::report_signal() {
    const int signal = stop_signal();
    if (signal == stop_signal_) return;
    stop_signal_ = signal;
    channel_.report(signal);
}

void Trainer::issue(Directive directive, const std::string& argument) {
    channel_.post(std::string(1, static_cast<char>(directive)) + argument);
    perform(directive, argument);
}

void Trainer::perform(Directive directive, const std::string& argument) {
    AdapterBank& bank = parts_.stage.bank();
    switch (directive) {
        case Directive::train:
            return train(window_from_text(argument));
        case Directive::evaluate:
            return evaluate(window_from_text(argument));
        case Directive::checkpoint:
            activity::begin(activity::Task::checkpoint);
            if (parts_.job.logging.trace) {
                write_trace(parts_.mpi, parts_.job, parts_.plan, parts_.recorder);
            }
            return save_checkpoint(parts_.mpi, parts_.job, parts_.plan, bank, state_,
                                   parts_.identity);
        case Directive::export_adapter:
            return export_adapter(static_cast<AdapterId>(std::stoi(argument)));
        case Directive::keep_best:
            return keep_best(static_cast<AdapterId>(std::stoi(argument)));
        case Directive::admit:
            activity::begin(activity::Task::admit);
            return bank.admit(adapters_from_text(argument));
        case Directive::release:
            return bank.release(static_cast<AdapterId>(std::stoi(argument)));
        case Directive::grow:
            activity::begin(activity::Task::admit);
            return grow(argument);
        case Directive::finish:
            return;
    }
}

void Trainer::train(const Window& window) {
    parts_.loader.start(window);
    parts_.runner.run(window, parts_.loader, {{}, [this] { report_signal(); }});
}

void Trainer::evaluate(const Window& window) {
    parts_.loader.start(window);
    const auto sign_of_life = [this] {
        if (parts_.mpi.is_root()) records_.beat(state_, elapsed());
    };
    const std::vector<EvalSums> mine = parts_.runner.run(window, parts_.loader, {{}, sign_of_life});
    const int last_rank = only_replica(parts_.plan).replica.stages.back().rank;
    const std::vector<EvalSums> sums =
        eval_sums_from_text(broadcast_text(parts_.mpi, eval_sums_text(mine), last_rank));
    if (!parts_.mpi.is_root()) return;
    for (std::size_t b = 0; b < window.batches.size(); ++b) {
        const BatchPlan& batch = window.batches[b];
        AdapterState& adapter = state_.adapters[index(batch.adapter)];
        const auto denominator = static_cast<double>(std::max<std::int64_t>(1, batch.denominator));
        const auto samples = static_cast<double>(std::max<std::int64_t>(1, sums[b].samples));
        adapter.last_eval_loss = sums[b].loss_sum / denominator;
        adapter.last_exact_match = static_cast<double>(sums[b].exact_samples) / samples;
        if (adapter.first_eval_loss < 0) {
            adapter.first_eval_loss = adapter.last_eval_loss;
            adapter.first_exact_match = adapter.last_exact_match;
        }
        metrics_.record_evaluation(batch.adapter, adapter.steps, adapter.last_eval_loss,
                                   adapter.last_exact_match);
        log::info(cat("evaluated ", parts_.job.adapter(batch.adapter).name, " at step ",
                      adapter.steps, ": loss ", format_fixed(adapter.last_eval_loss, 4),
                      ", perplexity ", format_fixed(std::exp(adapter.last_eval_loss), 2),
                      ", exact match ", format_fixed(100.0 * adapter.last_exact_match, 1), "%"));
    }
}

std::vector<NamedTensor> Trainer::gather_parameters(AdapterId adapter) {
    activity::begin(activity::Task::export_adapter, number(adapter));
    return gather_adapter(parts_.mpi, parts_.job, parts_.plan, parts_.stage.bank(), adapter,
                          AdapterBank::Part::parameters);
}

void Trainer::export_adapter(AdapterId adapter) {
    const std::vector<NamedTensor> tensors = gather_parameters(adapter);
    if (!parts_.mpi.is_root()) return;
    const AdapterJob& job = parts_.job.adapter(adapter);
    const std::string dir = parts_.job.run.dir + "/adapters/" + job.name;
    write_adapter(dir, job, parts_.job.model.base_model_name_or_path, tensors);
    const AdapterState& state = state_.adapters[index(adapter)];
    write_text_atomic(dir + "/DONE", done_text(parts_.job.eval, state));
    log::info("exported " + dir);
}

void Trainer::keep_best(AdapterId adapter) {
    const std::vector<NamedTensor> tensors = gather_parameters(adapter);
    if (!parts_.mpi.is_root()) return;
    write_best_adapter(parts_.job, state_.adapters[index(adapter)], adapter, tensors);
}

double Trainer::elapsed() const {
    return seconds_before_ + seconds_since(started_);
}

std::vector<AdapterId> Trainer::running_adapters() const {
    std::vector<AdapterId> adapters;
    for (std::size_t i = 0; i < state_.adapters.size(); ++i) {
        if (state_.adapters[i].status == AdapterStatus::running) {
            adapters.push_back(static_cast<AdapterId>(i));
        }
    }
    return adapters;
}

/// Whether those that train are evaluated after this round.
bool Trainer::regular_evaluation() const {
    const int every = parts_.job.eval.every_steps;
    return every > 0 && state_.round % every == 0;
}

/// Evaluates and exports those that trained, as it is due.
void Trainer::end_adapters(const std::vector<AdapterId>& before) {
    std::vector<AdapterId> evaluated;
    for (const AdapterId a : before) {
        const AdapterStatus status = state_.adapters[index(a)].status;
        const bool regular = status == AdapterStatus::running && regular_evaluation();
        if (status == AdapterStatus::done || regular) evaluated.push_back(a);
    }
    evaluate_adapters(evaluated);
    judge_evaluations(evaluated);
    activity::begin(activity::Task::end_window);
    flush_metrics();
    for (const AdapterId a : before) {
        if (is_complete(state_.adapters[index(a)].status)) {
            issue(Directive::export_adapter, std::to_string(index(a)));
        }
    }
    parts_.stop.window_took(seconds_since(window_started_));
}

void Trainer::evaluate_adapters(const std::vector<AdapterId>& adapters) {
    activity::begin(activity::Task::plan);
    const Window window = plan_eval_window(parts_.job, parts_.plan, parts_.datasets, adapters);
    if (!window.microbatches.empty()) issue(Directive::evaluate, to_text(window));
}

void Trainer::judge_evaluations(const std::vector<AdapterId>& adapters) {
    const EvalJob& eval = parts_.job.eval;
    for (const AdapterId a : adapters) {
        const AdapterJob& job = parts_.job.adapter(a);
        if (parts_.datasets[index(job.dataset)].eval.empty()) continue;
        AdapterState& state = state_.adapters[index(a)];
        if (note_evaluation(eval, state) && eval.keep_best) {
            issue(Directive::keep_best, std::to_string(index(a)));
        }
        const std::string reason = early_stop_reason(eval, state);
        if (reason.empty() || state.status != AdapterStatus::running) continue;
        state.status = AdapterStatus::stopped_early;
        log::info(cat("adapter ", job.name, " stopped early at step ", state.steps, ": ", reason));
    }
}

bool Trainer::checkpoint_due_by_time() const {
    const double minutes = parts_.job.checkpoint.every_minutes;
    return minutes > 0 && seconds_since(last_checkpoint_) > 60.0 * minutes;
}

bool Trainer::checkpoint_due() const {
    const int every = parts_.job.checkpoint.every_steps;
    return (every > 0 && state_.round % every == 0) || checkpoint_due_by_time();
}

/// Time limits only count once this start has got further.
std::string Trainer::reason_to_stop() {
    stop_signal_ = std::max({stop_signal_, stop_signal(), channel_.reported()});
    return parts_.stop.reason(stop_signal_, state_.round, batches_done_ > 0);
}

void Trainer::save() {
    const auto start = std::chrono::steady_clock::now();
    state_.elapsed_seconds = elapsed();
    issue(Directive::checkpoint);
    last_checkpoint_ = std::chrono::steady_clock::now();
    parts_.stop.checkpoint_took(seconds_since(start));
    log::info(cat("checkpoint at step ", state_.round));
    records_.write_results(state_);
    for (std::size_t i = 0; i < state_.adapters.size(); ++i) {
        const auto adapter = static_cast<AdapterId>(i);
        const bool absent = parts_.stage.bank().residence(adapter) == Residence::absent;
        if (is_unfinished(state_.adapters[i].status) || released_[i] || absent) continue;
        released_[i] = true;
        issue(Directive::release, std::to_string(i));
    }
    for (const std::string& name : stopping_) inbox_->obeyed(name);
    stopping_.clear();
}

void Trainer::flush_metrics() {
    const activity::OffDevice files;
    const auto rows = metrics_.flush();
    for (std::size_t i = 0; i < rows.size(); ++i) records_.add(static_cast<AdapterId>(i), rows[i]);
    records_.beat(state_, elapsed());
}

void Trainer::start_run() {
    std::vector<std::vector<MetricsRow>> rows;
    for (std::size_t i = 0; i < state_.adapters.size(); ++i) {
        const auto adapter = static_cast<AdapterId>(i);
        const std::string dir = parts_.job.run.dir + "/adapters/" + parts_.job.adapters[i].name;
        make_directory(dir);
        if (is_unfinished(state_.adapters[i].status)) {
            std::filesystem::remove(dir + "/DONE");
            std::filesystem::remove(dir + "/FAILED");
        }
        const bool empty = fresh_ || is_untouched(state_.adapters[i]);
        rows.push_back(metrics_.restore(adapter, empty ? -1 : state_.adapters[i].steps));
    }
    inbox_.emplace(parts_.job.run.dir);
    records_.start(state_, elapsed(), rows);
}

ExitCode Trainer::conduct() {
    if (set_back_) save();
    stop_reason_ = reason_to_stop();
    if (state_.finished() || stop_reason_.empty()) start_run();
    while (!finished() && stop_reason_.empty()) {
        admit_adapters();
        evaluate_newcomers();
        const std::vector<AdapterId> before = running_adapters();
        train_stream();
        end_adapters(before);
        obey_orders();
        stop_reason_ = reason_to_stop();
        if (state_.finished() || checkpoint_due() || !stop_reason_.empty()) save();
    }
    parts_.stop.obeyed();
    if (planning_.windows > 0) {
        log::info(cat("planned ", planning_.windows, " windows in ",
                      format_fixed(planning_.seconds, 2), " s, ",
                      format_fixed(planning_.waited_seconds, 2), " s of it waited for"));
    }
    ExitCode code = state_.finished() ? ExitCode::done : ExitCode::stopped_resume_me;
    const bool failed =
        std::any_of(state_.adapters.begin(), state_.adapters.end(),
                    [](const AdapterState& a) { return a.status == AdapterStatus::failed; });
    if (code == ExitCode::done && failed) code = ExitCode::some_adapters_failed;
    const bool stopped = code == ExitCode::stopped_resume_me;
    const std::string failure = failed ? "some adapters failed" : "";
    records_.end(state_, elapsed(), stopped ? "stopped" : "done", stopped ? stop_reason_ : failure);
    channel_.post(std::string(1, static_cast<char>(Directive::finish)) +
                  std::to_string(static_cast<int>(code)));
    channel_.finish();
    return code;
}

}  // namespace loratrain
