#include "train/services/evaluations.h"

#include <algorithm>

#include "base/activity.h"
#include "base/log.h"
#include "base/text.h"
#include "plan/sample_counts.h"
#include "plan/schedule/evaluations.h"
#include "plan/schedule/plan_window.h"
#include "train/checkpoint/run_state.h"
#include "train/services/services.h"

namespace loratrain {

namespace {

/// Of kto, whose samples may be undesirable. AdapterState shows it as not evaluated.
constexpr double no_accuracy = -1.0;

}  // namespace

// ---- before the first step

void EvaluationService::evaluate_newcomers() {
    std::map<StartKey, std::size_t> places;  // in the next two
    std::vector<AdapterId> first;
    std::vector<std::vector<AdapterId>> alike;  // behind each of `first`
    std::vector<AdapterId> known;
    for (const AdapterId a : worker_.adapters.running()) {
        if (!awaits_first(a)) continue;
        const std::optional<StartKey> key = start_of(worker_.job(a), worker_.parts.plan.model);
        if (knows_start(a)) {
            known.push_back(a);
        } else if (key && !places.emplace(*key, first.size()).second) {
            alike[places.at(*key)].push_back(a);
        } else {
            first.push_back(a);
            alike.emplace_back();
        }
    }
    for (std::size_t i = 0; i < first.size(); ++i) report_start(first[i], alike[i]);
    evaluate(first);
    for (const std::vector<AdapterId>& group : alike) {
        known.insert(known.end(), group.begin(), group.end());
    }
    for (const AdapterId a : known) take_start(a);
    worker_.journal.flush();
}

bool EvaluationService::awaits_first(AdapterId adapter) const {
    return is_untouched(worker_.state(adapter)) && worker_.adapters.has_eval_samples(adapter);
}

/// Before it is evaluated: that takes a while.
void EvaluationService::report_start(AdapterId first, const std::vector<AdapterId>& alike) const {
    constexpr std::size_t most_named = 4;
    std::vector<std::string> others;
    for (const AdapterId a : alike) others.push_back(worker_.job(a).name);
    const DatasetInfo& info = worker_.parts.datasets[index(worker_.job(first).dataset)];
    const std::int64_t samples = units_of(std::ssize(info.eval), info.group_samples);
    const std::string once = others.empty()
                                 ? ""
                                 : cat(", also for ", some_of(others, most_named), ", which ",
                                       others.size() == 1 ? "starts" : "start", " the same");
    log::info(cat("evaluating ", worker_.job(first).name, " before its first step", once, " (",
                  samples, " ", unit_word(info.group_samples), ")"));
}

/// Of a sweep, an adapter that starts as this one does and was evaluated by an earlier start of the
/// run or by another worker. Of its evaluation only loss and exact match are known.
const AdapterState* EvaluationService::recalled_start(AdapterId adapter) const {
    const std::optional<StartKey> key = start_of(worker_.job(adapter), worker_.parts.plan.model);
    if (!worker_.parts.job.sweep || !key) return nullptr;
    for (const AdapterId a : worker_.adapters.all()) {
        const AdapterState& state = worker_.state(a);
        if (state.first_eval_loss >= 0 && start_of(worker_.job(a), worker_.parts.plan.model) == key)
            return &state;
    }
    return nullptr;
}

bool EvaluationService::knows_start(AdapterId adapter) const {
    const std::optional<StartKey> key = start_of(worker_.job(adapter), worker_.parts.plan.model);
    return key && (starts_.contains(*key) || recalled_start(adapter) != nullptr);
}

void EvaluationService::take_start(AdapterId adapter) {
    const auto found =
        starts_.find(start_of(worker_.job(adapter), worker_.parts.plan.model).value());
    if (found != starts_.end()) {
        EvalResult result = found->second;
        result.adapter = adapter;
        return take_in(result, true);
    }
    const AdapterState& other = *recalled_start(adapter);
    take_evaluation(other.first_eval_loss, other.first_exact_match,
                    worker_.adapters[adapter].state);
    worker_.journal.start_known(adapter);
}

// ---- with an empty pipeline

void EvaluationService::evaluate(const std::vector<AdapterId>& adapters,
                                 std::int64_t most_samples) {
    activity::begin(activity::Task::plan);
    const RunParts& parts = worker_.parts;
    const JointWindow window =
        most_samples > 0
            ? plan_joint_eval_window(parts.job, parts.plan,
                                     first_eval_samples(parts.datasets, most_samples), adapters)
            : plan_joint_eval_window(parts.job, parts.plan, parts.datasets, adapters);
    if (window.common().batches.empty()) return;
    for (EvalResult& result : worker_.stream.evaluate(window)) {
        result.step = worker_.state(result.adapter).steps;
        take_in(result);
    }
}

void EvaluationService::judge(const std::vector<AdapterId>& adapters) {
    for (const AdapterId a : adapters) {
        if (worker_.adapters.has_eval_samples(a)) judge(a, worker_.state(a).steps);
    }
    worker_.services->bests.write(true);
}

// ---- in the stream

void EvaluationService::on_evaluation(const EvalResult& result) {
    if (result.training) return worker_.journal.record_details(result);
    results_.push_back(result);
    take_in();
}

/// Results behind steps that are known to have ended.
void EvaluationService::take_in() {
    Services& services = *worker_.services;
    std::erase_if(results_, [&](const EvalResult& result) {
        AdapterRun& run = worker_.adapters[result.adapter];
        if (run.state.steps < result.step) return false;
        take_in(result);
        const bool counts =
            result.step > 0 && !worker_.adapters.is_at_rung(result.adapter, result.step);
        if (counts) judge(result.adapter, result.step);
        run.stream.note_evaluation(result.step);
        services.bests.on_evaluated(result.adapter, result.step);
        services.checkpoints.on_evaluated(result.adapter, result.step);
        return true;
    });
    services.bests.write(false);
}

/// `is_shared`: it was made for another adapter, of which the log has it.
void EvaluationService::take_in(const EvalResult& result, bool is_shared) {
    const LossJob& loss = worker_.job(result.adapter).loss;
    double right = result.exact_match();
    if (loss.has_rewards()) {
        right = loss.is_of_pairs() ? means_of(result.rewards).accuracies : no_accuracy;
    }
    take_evaluation(result.loss(), right, worker_.adapters[result.adapter].state);
    worker_.journal.evaluated(result, is_shared);
    if (is_shared || result.step > 0) return;
    const auto key = start_of(worker_.job(result.adapter), worker_.parts.plan.model);
    if (key) starts_.emplace(*key, result);
}

void EvaluationService::judge(AdapterId adapter, std::int32_t step) {
    const EvalJob& eval = worker_.parts.job.eval;
    AdapterRun& run = worker_.adapters[adapter];
    AdapterState& state = run.state;
    if (note_evaluation(eval, step, state) && eval.keep_best) {
        worker_.services->bests.found(adapter, state);
    }
    const std::string reason = early_stop_reason(eval, state);
    if (reason.empty() || state.status != AdapterStatus::running) return;
    if (worker_.adapters.steps_to_come(adapter) == 0) return;
    LORATRAIN_CHECK(state.steps == step, "adapter ", number(adapter),
                    " has gone on behind the evaluation that ends it");
    state.status = AdapterStatus::stopped_early;
    run.stream.leave_at(state.steps);
    log::info(cat("adapter ", worker_.job(adapter).name, " stopped early at step ", state.steps,
                  ": ", reason));
}

/// While a result is awaited that may end an adapter.
bool EvaluationService::goes_on_undrained() const {
    return worker_.parts.job.eval.early_stopping_patience > 0 && worker_.changes_in_stream();
}

/// By the result of an evaluation before the round that has not been taken in.
bool EvaluationService::may_end_at(AdapterId adapter, std::int32_t round) const {
    const int patience = worker_.parts.job.eval.early_stopping_patience;
    if (patience == 0 || !worker_.adapters.trains_beyond(adapter, round)) return false;
    const std::int32_t pending = worker_.adapters.evaluations_pending(adapter, round);
    return pending > 0 && worker_.state(adapter).evaluations_without_gain + pending >= patience;
}

bool EvaluationService::awaits_results(std::int32_t round) const {
    if (!goes_on_undrained()) return false;
    const std::vector<AdapterId> adapters = worker_.adapters.in_stream();
    return std::any_of(adapters.begin(), adapters.end(),
                       [&](AdapterId a) { return may_end_at(a, round); });
}

bool EvaluationService::needs_drain(std::int32_t round) {
    const bool awaits_best = worker_.parts.job.eval.keep_best && !worker_.copies_fit;
    const std::vector<AdapterId> adapters = worker_.adapters.in_stream();
    return std::any_of(adapters.begin(), adapters.end(), [&](AdapterId a) {
        const bool best = awaits_best && worker_.adapters.trains_beyond(a, round);
        if (best && worker_.adapters.evaluations_pending(a, round) > 0) return true;
        return !goes_on_undrained() && may_end_at(a, round);
    });
}

bool EvaluationService::change(const Progress& planned, StreamChange& change) {
    for (const AdapterId a : worker_.adapters.in_stream()) {
        const bool ended = worker_.state(a).status == AdapterStatus::stopped_early;
        if (ended && !planned.stopped[index(a)]) change.ended.push_back(a);
    }
    return true;
}

std::int32_t EvaluationService::next_event(const Progress& planned) const {
    const EvalJob& eval = worker_.parts.job.eval;
    const bool awaits = eval.keep_best || eval.early_stopping_patience > 0;
    if (!awaits || eval.every_steps == 0) return no_round;
    return planned.round + eval.every_steps - planned.round % eval.every_steps;
}

/// By the next evaluation of all behind the planned rounds, which a window ends with. When it comes
/// to that, no more are: what is noted meanwhile never brings an adapter nearer to its end.
void EvaluationService::add_deciding(const Progress& planned,
                                     std::vector<AdapterId>& adapters) const {
    const int every = worker_.parts.job.eval.every_steps;
    if (every == 0 || !goes_on_undrained()) return;
    for (const AdapterId a : worker_.adapters.in_stream()) {
        if (may_end_at(a, (planned.round / every + 1) * every)) adapters.push_back(a);
    }
}

}  // namespace loratrain
