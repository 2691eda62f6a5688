#include "train/state_copies.h"

#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "train/checkpoint/adapter_transfer.h"
#include "train/checkpoint/stored_adapter.h"

namespace loratrain {

void StateCopies::begin(const std::vector<AdapterId>& adapters, PipelineRunner& runner,
                        Deliver deliver) {
    LORATRAIN_CHECK(awaited_.empty(), "adapter ", number(awaited_.begin()->first),
                    " is still to be copied for the checkpoint before");
    runner_ = &runner;
    deliver_ = std::move(deliver);
    counters_.clear();
    for (const AdapterId adapter : adapters) {
        if (const auto step = runner.step_to_take(adapter)) {
            awaited_[adapter] = *step;
        } else {
            copy(adapter);
        }
    }
}

void StateCopies::stepped(const BatchPlan& batch) {
    const auto found = awaited_.find(batch.adapter);
    if (found == awaited_.end() || found->second != batch.step) return;
    awaited_.erase(found);
    copy(batch.adapter);
}

void StateCopies::copy(AdapterId adapter) {
    activity::begin(activity::Task::checkpoint);
    runner_->settle();
    for (const StoredPart& stored : stored_parts) {
        const std::vector<float> values = own_values(bank_, adapter, stored.part);
        for (const AdapterPiece& piece : pieces_of({adapter, stored.part, true}, rank_, values)) {
            deliver_(piece);
        }
    }
    counters_[adapter] = bank_.counters(adapter);
}

}  // namespace loratrain
