#include "train/services/redeployment.h"

#include <algorithm>
#include <functional>

#include "base/threads.h"
#include "train/services/services.h"

namespace loratrain {

namespace {

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

/// Of those that train behind the round the one that ends first: after it the others have the steps
/// that they are planned to have, or the pipeline was emptied before.
void RedeployService::foresee_end(std::int32_t round) {
    foreseen_.reset();
    if (!worker_.parts.redeploys || worker_.ends_need_drain()) return;
    RunState then = worker_.services->dispatch.state();
    then.round = no_round;
    const std::vector<AdapterId> adapters = worker_.adapters.in_stream();
    for (const AdapterId a : adapters) {
        if (!worker_.adapters.trains_beyond(a, round)) continue;
        const StreamPart& stream = worker_.adapters[a].stream;
        then.round = std::min(then.round,
                              stream.first_round() + worker_.total_steps(a) - stream.first_steps());
    }
    if (then.round == no_round) return;
    for (const AdapterId a : adapters) {
        const StreamPart& stream = worker_.adapters[a].stream;
        AdapterState& adapter = then.adapters[index(a)];
        const std::int32_t total = worker_.total_steps(a);
        adapter.steps = std::min(total, stream.first_steps() + then.round - stream.first_round());
        if (adapter.steps == total) adapter.status = AdapterStatus::done;
    }
    const std::vector<AdapterId> left = unfinished_in(then);
    if (left.empty()) return;
    const bool is_judged = left == then.deployment.judged_for;
    foreseen_ = {then.round, left,
                 is_judged ? known(false) : judged(worker_.parts.redeploys, then)};
}

bool RedeployService::needs_drain(std::int32_t round) {
    if (!foreseen_ || round < foreseen_->round) return false;
    // Waited for, as what the stream does must not depend on how long that takes.
    if (foreseen_->pays.get()) return true;
    worker_.adapters.deployment().judged_for = foreseen_->left;
    foresee_end(round);
    return false;
}

std::int32_t RedeployService::last_round(const Progress& /*planned*/) const {
    return foreseen_ ? foreseen_->round + 1 : no_round;
}

std::int32_t RedeployService::next_event(const Progress& /*planned*/) const {
    return foreseen_ ? foreseen_->round : no_round;
}

void RedeployService::finish() {
    if (foreseen_) foreseen_->pays.wait();
}

bool RedeployService::redeploys() {
    const RunState now = worker_.services->dispatch.state();
    const std::vector<AdapterId> left = unfinished_in(now);
    const auto& redeploys = worker_.parts.redeploys;
    if (!redeploys || left.empty() || left == now.deployment.judged_for) return false;
    const bool foreseen = foreseen_ && foreseen_->left == left && foreseen_->round == now.round;
    if (foreseen ? foreseen_->pays.get() : redeploys(now)) return true;
    worker_.adapters.deployment().judged_for = left;
    return false;
}

}  // namespace loratrain
