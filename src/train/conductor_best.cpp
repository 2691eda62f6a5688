#include <algorithm>
#include <set>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "plan/schedule/evaluations.h"
#include "train/conductor.h"
#include "train/early_stopping.h"
#include "train/records/best_adapter.h"

/// Evaluations that decide: what the best state of an adapter is, and whether it ends early. Their
/// results come while the steps behind them are under way. So states are kept as they were
/// evaluated until it is known whether they are the best. Where a result may end an adapter, no
/// round is planned until it is there: the adapter never takes a step more. What that leaves of the
/// pipeline evaluations of others fill.

namespace loratrain {

/// Whether steps that its stream has planned for it lie behind the round.
bool Conductor::trains_beyond(AdapterId adapter, std::int32_t round) const {
    if (!begun_.contains(adapter) || last_steps_.contains(adapter)) return false;
    return steps_before(adapter, round) < parts_.plan.adapters[index(adapter)].total_steps;
}

/// Behind rounds of the stream before this one, of an adapter that trains on: due and not noted.
std::int32_t Conductor::evaluations_pending(AdapterId adapter, std::int32_t round) const {
    const int every = parts_.job.eval.every_steps;
    if (every == 0 || !has_eval_samples(parts_.job, parts_.datasets, adapter)) return 0;
    const Begin& begin = begun_.at(adapter);
    const auto evaluated = evaluated_.find(adapter);
    const std::int32_t noted =
        evaluated == evaluated_.end() ? begin.steps : std::max(begin.steps, evaluated->second);
    return round / every - (begin.round + noted - begin.steps) / every;
}

/// Before the round, which no window has begun with yet.
bool Conductor::evaluations_need_drain(std::int32_t round) const {
    const bool awaits_best = parts_.job.eval.keep_best && !saves_in_stream_;
    return std::any_of(begun_.begin(), begun_.end(), [&](const auto& entry) {
        const AdapterId a = entry.first;
        const bool best = awaits_best && trains_beyond(a, round);
        if (best && evaluations_pending(a, round) > 0) return true;
        return !goes_on_undrained() && may_end_at(a, round);
    });
}

/// While a result is awaited that may end an adapter.
bool Conductor::goes_on_undrained() const {
    const bool early = parts_.job.eval.early_stopping_patience > 0;
    return early && changes_in_stream();
}

/// By the result of an evaluation before the round that has not been noted.
bool Conductor::may_end_at(AdapterId adapter, std::int32_t round) const {
    const int patience = parts_.job.eval.early_stopping_patience;
    if (patience == 0 || !trains_beyond(adapter, round)) return false;
    const std::int32_t pending = evaluations_pending(adapter, round);
    return pending > 0 && adapters_[adapter].state.evaluations_without_gain + pending >= patience;
}

/// By the next evaluation of all behind the planned rounds, which a window ends with. When it comes
/// to that, no more are: what is noted meanwhile never brings an adapter nearer to its end.
std::vector<AdapterId> Conductor::deciding(const Progress& planned) const {
    const int every = parts_.job.eval.every_steps;
    std::vector<AdapterId> adapters;
    for (const auto& [a, begin] : begun_) {
        const bool early =
            every > 0 && goes_on_undrained() && may_end_at(a, (planned.round / every + 1) * every);
        if (early || ends_before_rungs(a)) adapters.push_back(a);
    }
    return adapters;
}

bool Conductor::awaits_evaluations(std::int32_t round) const {
    if (awaits_rungs(round)) return true;
    if (!goes_on_undrained()) return false;
    return std::any_of(begun_.begin(), begun_.end(),
                       [&](const auto& entry) { return may_end_at(entry.first, round); });
}

/// Those whom an evaluation before the next window has ended.
void Conductor::end_stopped_early(const Progress& planned, StreamChange& change) {
    for (const auto& [a, begin] : begun_) {
        const bool ended = adapters_[a].state.status == AdapterStatus::stopped_early;
        if (ended && !planned.stopped[index(a)]) change.ended.push_back(a);
    }
}

/// Of those that are evaluated before the next window and train on in it, and of trials that end:
/// they may not be exported.
void Conductor::keep_evaluated(const Progress& planned, StreamChange& change) const {
    if (!parts_.job.eval.keep_best) return;
    for (const auto& [a, begin] : begun_) {
        const bool evaluated = has_eval_samples(parts_.job, parts_.datasets, a);
        if (!evaluated || begin.round >= planned.round) continue;
        const std::int32_t steps = begin.steps + planned.round - begin.round;
        const bool trains_on =
            all_are_evaluated(parts_.job, planned.round) && trains_beyond(a, planned.round);
        const bool ends = parts_.job.adapter(a).trial && saves_in_stream_ &&
                          !last_steps_.contains(a) &&
                          steps == parts_.plan.adapters[index(a)].total_steps;
        if (trains_on || ends) change.kept.push_back({a, planned.steps[index(a)]});
    }
}

void Conductor::store_kept(const AdapterAtStep& which, AdapterParts::ByRank values) {
    const auto evaluated = evaluated_.find(which.adapter);
    const bool known = evaluated != evaluated_.end() && evaluated->second >= which.step;
    if (known && !is_best(which.adapter, which.step)) return;
    kept_[which] = std::move(values);
    write_bests(false);
}

/// And its files are not written yet.
bool Conductor::is_best(AdapterId adapter, std::int32_t step) const {
    return std::any_of(bests_.begin(), bests_.end(), [&](const Best& best) {
        return best.adapter == adapter && best.state.best_step == step;
    });
}

bool Conductor::has_best_to_write(AdapterId adapter) const {
    return std::any_of(bests_.begin(), bests_.end(),
                       [&](const Best& best) { return best.adapter == adapter; });
}

void Conductor::judge_evaluations(const std::vector<AdapterId>& adapters) {
    for (const AdapterId a : adapters) {
        if (!has_eval_samples(parts_.job, parts_.datasets, a)) continue;
        judge_evaluation(a, adapters_[a].state.steps);
    }
    write_bests(true);
}

void Conductor::judge_evaluation(AdapterId adapter, std::int32_t step) {
    const EvalJob& eval = parts_.job.eval;
    AdapterState& state = adapters_[adapter].state;
    if (note_evaluation(eval, step, state) && eval.keep_best) bests_.push_back({adapter, state});
    const std::string reason = early_stop_reason(eval, state);
    if (reason.empty() || state.status != AdapterStatus::running) return;
    if (steps_left(adapter) == 0) return;
    LORATRAIN_CHECK(state.steps == step, "adapter ", number(adapter),
                    " has gone on behind the evaluation that ends it");
    state.status = AdapterStatus::stopped_early;
    last_steps_[adapter] = state.steps;
    log::info(cat("adapter ", parts_.job.adapter(adapter).name, " stopped early at step ",
                  state.steps, ": ", reason));
}

/// In the order in which they were found; a checkpoint that is being written has those of its
/// round. What was not kept is as it is in the empty pipeline.
void Conductor::write_bests(bool pipeline_is_empty) {
    std::set<AdapterId> later;
    std::erase_if(bests_, [&](const Best& best) {
        const auto kept = kept_.find({best.adapter, best.state.best_step});
        const bool waits = later.contains(best.adapter) || !saving_has(best) ||
                           (kept == kept_.end() && !pipeline_is_empty);
        if (waits) later.insert(best.adapter);
        if (!waits) write_best(best);
        return !waits;
    });
}

/// Or none is being written.
bool Conductor::saving_has(const Best& best) const {
    return !saving_ || best.state.best_step <= saving_->state.steps(best.adapter);
}

void Conductor::write_best(const Best& best) {
    const std::int32_t step = best.state.best_step;
    const auto write = [&](const std::vector<NamedTensor>& tensors) {
        write_best_adapter(parts_.job, parts_.plan.model, best.state, best.adapter, tensors);
    };
    const auto kept = kept_.find({best.adapter, step});
    if (kept == kept_.end()) {
        LORATRAIN_CHECK(adapters_[best.adapter].state.steps == step, "adapter ",
                        number(best.adapter), " was not kept at step ", step);
        return write(gather(best.adapter));
    }
    activity::begin(activity::Task::export_adapter, number(best.adapter));
    write(performer_.join(best.adapter, kept->second));
    kept_.erase(kept);
}

}  // namespace loratrain
