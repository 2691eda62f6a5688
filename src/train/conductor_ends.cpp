#include <algorithm>
#include <functional>
#include <future>
#include <limits>

#include "base/background_work.h"
#include "plan/schedule/evaluations.h"
#include "train/conductor.h"

/// Ends that the stream goes on behind, though something is to be done that needs an empty
/// pipeline: where no other deployment pays, which is found out before the end, and until the texts
/// of those that have ended would take long.

namespace loratrain {

namespace {

constexpr double most_seconds_of_texts = 10.0;  // that who stops the run waits for

using Judge = std::function<bool(const RunState&)>;

std::shared_future<bool> judged(const Judge& judge, const RunState& then) {
    return std::async(std::launch::async, [judge, then] {
        const BackgroundWork background;
        return judge(then);
    });
}

std::shared_future<bool> known(bool pays) {
    std::promise<bool> answer;
    answer.set_value(pays);
    return answer.get_future();
}

}  // namespace

bool Conductor::foresees_ends() const {
    return parts_.redeploys && !ends_need_drain();
}

/// Of those that train behind the round the one that ends first: after it the others have the steps
/// that they are planned to have, or the pipeline was emptied before.
void Conductor::foresee_end(std::int32_t round) {
    foreseen_.reset();
    if (!foresees_ends()) return;
    const auto total_of = [&](AdapterId a) { return parts_.plan.adapters[index(a)].total_steps; };
    RunState then = state();
    then.round = std::numeric_limits<std::int32_t>::max();
    for (const auto& [a, begin] : begun_) {
        if (!trains_beyond(a, round)) continue;
        then.round = std::min(then.round, begin.round + total_of(a) - begin.steps);
    }
    for (const auto& [a, begin] : begun_) {
        AdapterState& adapter = then.adapters[index(a)];
        adapter.steps = std::min(total_of(a), begin.steps + then.round - begin.round);
        if (adapter.steps == total_of(a)) adapter.status = AdapterStatus::done;
    }
    const std::vector<AdapterId> left = unfinished_in(then);
    if (left.empty()) return;
    const bool is_judged = left == then.deployment.judged_for;
    foreseen_ = {then.round, left, is_judged ? known(false) : judged(parts_.redeploys, then)};
}

/// False where all that are left may have to go on in another deployment.
bool Conductor::goes_on_behind(std::int32_t round) {
    if (!foreseen_ || round < foreseen_->round) return true;
    // Waited for, as what the stream does must not depend on how long that takes.
    if (foreseen_->pays.get()) return false;
    adapters_.deployment().judged_for = foreseen_->left;
    foresee_end(round);
    return true;
}

/// It writes them when it has ended.
bool Conductor::has_texts(AdapterId adapter) const {
    return parts_.job.eval.generate.wanted() &&
           has_eval_samples(parts_.job, parts_.datasets, adapter);
}

/// Adapters that end in the stream before the round and have texts to write then.
int Conductor::texts_waiting(std::int32_t round) const {
    return static_cast<int>(std::count_if(begun_.begin(), begun_.end(), [&](const auto& entry) {
        return has_texts(entry.first) && !trains_beyond(entry.first, round);
    }));
}

/// At the first end it is not known how long they take.
bool Conductor::texts_are_due(std::int32_t round) const {
    const double each = text_seconds_.value_or(most_seconds_of_texts);
    return texts_waiting(round) * each >= most_seconds_of_texts;
}

}  // namespace loratrain
