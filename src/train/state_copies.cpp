#include "train/state_copies.h"

#include <algorithm>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "train/checkpoint/stored_adapter.h"

namespace loratrain {

void StateCopies::begin(const std::vector<AdapterId>& adapters, PipelineRunner& runner,
                        Deliver deliver) {
    for (const Wanted& wanted : awaited_) {
        LORATRAIN_CHECK(wanted.use != PartUse::checkpoint, "adapter ", number(wanted.adapter),
                        " is still to be copied for the checkpoint before");
    }
    runner_ = &runner;
    deliver_ = std::move(deliver);
    counters_.clear();
    for (const AdapterId adapter : adapters) want({adapter});
}

void StateCopies::keep(const std::vector<AdapterAtStep>& adapters, PipelineRunner& runner,
                       Deliver deliver) {
    runner_ = &runner;
    deliver_ = std::move(deliver);
    for (const auto& [adapter, step] : adapters) want({adapter, PartUse::kept, step});
}

void StateCopies::want(Wanted wanted) {
    const auto step = runner_->step_to_take(wanted.adapter);
    if (!step) return copy(wanted);
    wanted.last_step = *step;
    awaited_.push_back(wanted);
}

void StateCopies::stepped(const BatchPlan& batch) {
    std::erase_if(awaited_, [&](const Wanted& wanted) {
        if (wanted.adapter != batch.adapter || wanted.last_step != batch.step) return false;
        copy(wanted);
        return true;
    });
}

void StateCopies::copy(const Wanted& wanted) {
    const activity::Inside copying(activity::Task::checkpoint);
    runner_->settle();
    if (wanted.use == PartUse::kept) {
        return deliver({wanted.adapter, StatePart::parameters, wanted.use, wanted.kept_step});
    }
    if (deliver_) {
        for (const StoredPart& stored : stored_parts) {
            deliver({wanted.adapter, stored.part, wanted.use});
        }
    }
    counters_[wanted.adapter] = bank_.counters(wanted.adapter);
}

void StateCopies::deliver(const PartKey& key) {
    deliver_(whole_piece(key, rank_, bank_.numbers(key.adapter, key.part)));
}

}  // namespace loratrain
