#include "plan/schedule/stream_batches.h"

#include <algorithm>
#include <utility>

namespace loratrain {

void StreamBatches::append(const Window& window, const SegmentBatches& batch_of,
                           std::int32_t backwarded) {
    leave(backwarded);
    for (const BatchPlan& batch : window.batches) {
        std::int32_t& newest = newest_.try_emplace(batch.adapter, -1).first->second;
        batches_[next_] = {batch.adapter, batch.evaluation, batch.last_microbatch, newest,
                           std::vector<BatchProgress>(stages_)};
        if (batch.evaluation && !batch.is_here()) {
            for (BatchProgress& on : batches_[next_].stages) on.stepped = true;
        }
        if (!batch.evaluation || batch.is_here()) newest = next_;
        ++next_;
    }
    for (std::size_t m = 0; m < batch_of.size(); ++m) {
        OfMicrobatch microbatch{{}, window.microbatches[m].evaluation};
        for (const std::int32_t b : batch_of[m]) {
            microbatch.batches.push_back(window.first_batch + b);
            for (BatchProgress& on : batches_[microbatch.batches.back()].stages) ++on.passes_left;
        }
        microbatches_.push_back(std::move(microbatch));
    }
}

void StreamBatches::leave(std::int32_t backwarded) {
    for (auto& [b, batch] : batches_) {
        for (BatchProgress& on : batch.stages) on.left = on.stepped;
    }
    std::erase_if(batches_, [](const auto& entry) {
        return std::all_of(entry.second.stages.begin(), entry.second.stages.end(),
                           [](const BatchProgress& on) { return on.left; });
    });
    microbatches_.drop_below(backwarded);
}

const BatchProgress* StreamBatches::progress(std::size_t stage, std::int32_t batch) const {
    const BatchState* state = find(batch);
    return state == nullptr || state->stages[stage].left ? nullptr : &state->stages[stage];
}

BatchProgress* StreamBatches::progress(std::size_t stage, std::int32_t batch) {
    return const_cast<BatchProgress*>(std::as_const(*this).progress(stage, batch));
}

bool StreamBatches::is_stepped(std::size_t stage, std::int32_t batch) const {
    const BatchProgress* on = progress(stage, batch);
    return on == nullptr || on->stepped;
}

bool StreamBatches::sum_complete(std::size_t stage, std::int32_t batch) const {
    const BatchProgress* on = progress(stage, batch);
    const bool is_last = stage + 1 == stages_;
    return on != nullptr && on->passes_left == 0 && (is_last || on->partial_received);
}

bool StreamBatches::total_known(std::size_t stage, std::int32_t batch) const {
    if (stage == 0) return sum_complete(stage, batch);
    const BatchProgress* on = progress(stage, batch);
    return on != nullptr && on->total_received;
}

const BatchState* StreamBatches::find(std::int32_t batch) const {
    const auto found = batches_.find(batch);
    return found == batches_.end() ? nullptr : &found->second;
}

const std::vector<std::int32_t>& StreamBatches::batches_in(MicrobatchId id) const {
    static const std::vector<std::int32_t> none;
    return microbatches_.holds(number(id)) ? microbatches_[number(id)].batches : none;
}

bool StreamBatches::evaluates(MicrobatchId id) const {
    return microbatches_.holds(number(id)) && microbatches_[number(id)].evaluation;
}

}  // namespace loratrain
