#pragma once

#include "base/wire.h"
#include "plan/action_traits.h"
#include "plan/plan.h"

/// Fields of windows, for the way to other ranks (base/archive.h).
namespace loratrain {

template <class Archive>
void fields(Archive& archive, SampleRef& sample) {
    archive.list(sample.index, sample.tokens, sample.targets, sample.undesirable);
}

template <class Archive>
void fields(Archive& archive, Segment& segment) {
    archive.list(segment.adapter, segment.step, segment.samples);
}

/// The window has the lasting columns; a microbatch has only whether there are any.
template <class Archive>
void fields(Archive& archive, LoraColumns& columns) {
    bool lasting = !columns.lasting.empty();
    archive.list(columns.augmented, columns.width, columns.first, lasting);
    if constexpr (Archive::reads) columns.lasting.resize(lasting ? 1 : 0);
}

template <class Archive>
void fields(Archive& archive, Microbatch& microbatch) {
    archive.list(microbatch.segments, microbatch.columns, microbatch.evaluation);
}

template <class Archive>
void fields(Archive& archive, BatchPlan& batch) {
    archive.list(batch.adapter, batch.step, batch.round, batch.epoch, batch.samples, batch.tokens,
                 batch.padding, batch.targets, batch.chosen_targets, batch.target_weight,
                 batch.denominator, batch.file_denominators, batch.first_microbatch,
                 batch.last_microbatch, batch.last_of_adapter, batch.evaluation);
}

template <class Archive>
void fields(Archive& archive, Action& action) {
    archive.list(below(action_kinds.size(), action.kind), action.microbatch, action.batch,
                 action.slot, action.buffer, action.peer, action.carried);
}

template <class Archive>
void fields(Archive& archive, Window& window) {
    std::vector<std::int32_t> lasting;
    for (const Microbatch& microbatch : window.microbatches) {
        if (lasting.empty()) lasting = microbatch.columns.lasting;
    }
    archive.list(window.first_round, window.rounds, window.begins, window.drains,
                 window.first_batch, window.first_microbatch, window.batches, lasting,
                 window.microbatches, window.actions, window.peak_in_flight);
    if constexpr (Archive::reads) {
        for (Microbatch& microbatch : window.microbatches) {
            LoraColumns& columns = microbatch.columns;
            if (columns.first.size() != microbatch.segments.size()) {
                throw Error("a microbatch has not a first column for each of its segments");
            }
            if (!columns.lasting.empty()) columns.lasting = lasting;
        }
    }
}

template <class Archive>
void fields(Archive& archive, JointWindow& joint) {
    archive("replicas", joint.replicas);
    archive("reductions", joint.reductions);
    if constexpr (Archive::reads) {
        if (joint.replicas.empty()) throw Error("a window of no replica");
    }
}

}  // namespace loratrain
