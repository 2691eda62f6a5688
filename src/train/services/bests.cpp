#include "train/services/bests.h"

#include <algorithm>

#include "base/activity.h"
#include "base/error.h"
#include "plan/schedule/evaluations.h"
#include "train/checkpoint/best_adapter.h"
#include "train/services/services.h"

namespace loratrain {

/// Of adapters that are evaluated before the window and train on in it, and of trials that end:
/// they may not be exported.
bool BestService::change(const Progress& planned, StreamChange& change) {
    const RunParts& parts = worker_.parts;
    if (!parts.job.eval.keep_best) return true;
    for (const AdapterId a : worker_.adapters.in_stream()) {
        const StreamPart& stream = worker_.adapters[a].stream;
        if (!worker_.adapters.has_eval_samples(a) || stream.first_round() >= planned.round)
            continue;
        const std::int32_t steps = stream.first_steps() + planned.round - stream.first_round();
        const bool trains_on = all_are_evaluated(parts.job, planned.round) &&
                               worker_.adapters.trains_beyond(a, planned.round);
        const bool ends = worker_.job(a).trial && worker_.copies_fit && !stream.last_step() &&
                          steps == worker_.total_steps(a);
        if (!trains_on && !ends) continue;
        const AdapterAtStep at{a, planned.steps[index(a)]};
        asked_.insert(at);
        change.keep(at);
    }
    return true;
}

void BestService::on_part(const PartKey& key, AdapterParts::ByRank& values) {
    if (key.use != PartUse::kept) return;
    const bool asked = asked_.erase({key.adapter, key.step}) > 0;
    if (!asked && !is_best(key.adapter, key.step)) return;
    const std::optional<std::int32_t> evaluated = worker_.adapters[key.adapter].stream.evaluated();
    const bool known = evaluated && *evaluated >= key.step;
    if (!known || is_best(key.adapter, key.step)) keep({key.adapter, key.step}, std::move(values));
}

void BestService::on_evaluated(AdapterId adapter, std::int32_t step) {
    if (!is_best(adapter, step)) kept_.erase({adapter, step});
}

void BestService::found(AdapterId adapter, const AdapterState& state) {
    bests_.push_back({adapter, state});
    ++worker_.adapters[adapter].bests_to_write;
}

bool BestService::is_best(AdapterId adapter, std::int32_t step) const {
    return std::any_of(bests_.begin(), bests_.end(), [&](const Best& best) {
        return best.adapter == adapter && best.state.best_step == step;
    });
}

void BestService::keep(const AdapterAtStep& which, AdapterParts::ByRank values) {
    kept_[which] = std::move(values);
    write(false);
}

void BestService::write(bool pipeline_is_empty) {
    if (std::exchange(writing_, true)) return;  // what is fetched comes through keep()
    std::set<AdapterId> later;
    for (std::size_t i = 0; i < bests_.size();) {
        const Best best = bests_[i];
        const bool kept = kept_.contains({best.adapter, best.state.best_step});
        const bool waits = later.contains(best.adapter) ||
                           !worker_.services->checkpoints.has(best.adapter, best.state.best_step) ||
                           (!kept && !pipeline_is_empty);
        if (waits) {
            later.insert(best.adapter);
            ++i;
            continue;
        }
        if (!kept) fetch(best);
        write(best);
        bests_.erase(bests_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    writing_ = false;
}

/// It is as it was found.
void BestService::fetch(const Best& best) {
    const std::int32_t step = best.state.best_step;
    LORATRAIN_CHECK(worker_.state(best.adapter).steps == step, "adapter ", number(best.adapter),
                    " was not kept at step ", step);
    worker_.stream.keep_parameters({{best.adapter, step}});
    worker_.stream.finish_orders();
}

void BestService::write(const Best& best) {
    const auto kept = kept_.find({best.adapter, best.state.best_step});
    const activity::Inside writing(activity::Task::export_adapter, number(best.adapter));
    write_best_adapter(worker_.parts.job, worker_.parts.plan.model, best.state, best.adapter,
                       worker_.ranks.join(best.adapter, kept->second));
    kept_.erase(kept);
    --worker_.adapters[best.adapter].bests_to_write;
}

bool BestService::written_for_checkpoint() const {
    return std::none_of(bests_.begin(), bests_.end(), [this](const Best& best) {
        return worker_.services->checkpoints.has(best.adapter, best.state.best_step);
    });
}

}  // namespace loratrain
