#pragma once

#include "base/wire.h"
#include "plan/action_traits.h"
#include "plan/plan.h"

/// Fields of windows, for the way to other ranks (base/archive.h).
namespace loratrain {

template <class Archive>
void fields(Archive& archive, SampleRef& sample) {
    archive("index", sample.index);
    archive("tokens", sample.tokens);
    archive("targets", sample.targets);
    archive("undesirable", sample.undesirable);
}

template <class Archive>
void fields(Archive& archive, Segment& segment) {
    archive("adapter", segment.adapter);
    archive("step", segment.step);
    archive("samples", segment.samples);
}

/// The window has the lasting columns; a microbatch has only whether there are any.
template <class Archive>
void fields(Archive& archive, LoraColumns& columns) {
    bool lasting = !columns.lasting.empty();
    archive("augmented", columns.augmented);
    archive("width", columns.width);
    archive("first", columns.first);
    archive("lasting", lasting);
    if constexpr (Archive::reads) columns.lasting.resize(lasting ? 1 : 0);
}

template <class Archive>
void fields(Archive& archive, Microbatch& microbatch) {
    archive("segments", microbatch.segments);
    archive("columns", microbatch.columns);
    archive("evaluation", microbatch.evaluation);
}

template <class Archive>
void fields(Archive& archive, BatchPlan& batch) {
    archive("adapter", batch.adapter);
    archive("step", batch.step);
    archive("round", batch.round);
    archive("epoch", batch.epoch);
    archive("samples", batch.samples);
    archive("tokens", batch.tokens);
    archive("padding", batch.padding);
    archive("targets", batch.targets);
    archive("chosen_targets", batch.chosen_targets);
    archive("target_weight", batch.target_weight);
    archive("denominator", batch.denominator);
    archive("file_denominators", batch.file_denominators);
    archive("first_microbatch", batch.first_microbatch);
    archive("last_microbatch", batch.last_microbatch);
    archive("last_of_adapter", batch.last_of_adapter);
    archive("evaluation", batch.evaluation);
}

template <class Archive>
void fields(Archive& archive, Action& action) {
    archive("kind", below(action_kinds.size(), action.kind));
    archive("microbatch", action.microbatch);
    archive("batch", action.batch);
    archive("slot", action.slot);
    archive("buffer", action.buffer);
    archive("peer", action.peer);
    archive("carried", action.carried);
}

template <class Archive>
void fields(Archive& archive, Window& window) {
    std::vector<std::int32_t> lasting;
    for (const Microbatch& microbatch : window.microbatches) {
        if (lasting.empty()) lasting = microbatch.columns.lasting;
    }
    archive("first_round", window.first_round);
    archive("rounds", window.rounds);
    archive("begins", window.begins);
    archive("drains", window.drains);
    archive("first_batch", window.first_batch);
    archive("first_microbatch", window.first_microbatch);
    archive("batches", window.batches);
    archive("lasting_columns", lasting);
    archive("microbatches", window.microbatches);
    archive("actions", window.actions);
    archive("peak_in_flight", window.peak_in_flight);
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
