#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "adapter/adapter_bank.h"
#include "train/adapter_parts.h"
#include "train/pipeline_runner.h"

namespace loratrain {

/// Copies what this rank has of adapters' state, for a checkpoint between two rounds while the
/// rounds behind it are under way: each adapter as soon as it has taken its last step before them.
class StateCopies {
  public:
    /// Gets the parts that a checkpoint stores, in pieces.
    using Deliver = std::function<void(const AdapterPiece&)>;

    /// The bank outlives it.
    StateCopies(AdapterBank& bank, int rank) : bank_(bank), rank_(rank) {}

    /// Between two windows of the runner's stream: those behind it belong to the rounds behind.
    /// The copies asked for before must have been made.
    void begin(const std::vector<AdapterId>& adapters, PipelineRunner& runner, Deliver deliver);
    /// The stage has taken a step of a batch.
    void stepped(const BatchPlan& batch);

    /// Of a copied adapter, as they were then.
    const AdapterBank::Counters& counters(AdapterId adapter) const { return counters_.at(adapter); }

  private:
    void copy(AdapterId adapter);

    AdapterBank& bank_;
    int rank_;
    PipelineRunner* runner_ = nullptr;  ///< once begun
    Deliver deliver_;
    std::map<AdapterId, std::int32_t> awaited_;  ///< the last step before the rounds behind
    std::map<AdapterId, AdapterBank::Counters> counters_;
};

}  // namespace loratrain
