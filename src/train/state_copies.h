#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "adapter/adapter_bank.h"
#include "train/adapter_parts.h"
#include "train/pipeline_runner.h"

namespace loratrain {

/// Copies what this rank has of adapters' state between two rounds, while the rounds behind are
/// under way: each adapter as soon as it has taken its last step before them.
class StateCopies {
  public:
    /// Gets what is copied, a whole piece of each part.
    using Deliver = std::function<void(AdapterPiece)>;

    /// The bank outlives it.
    StateCopies(AdapterBank& bank, int rank) : bank_(bank), rank_(rank) {}

    /// All that a checkpoint stores. Between two windows of the runner's stream: those behind it
    /// belong to the rounds behind. The copies of the checkpoint before must have been made.
    /// Without `deliver` only counters are noted.
    void begin(const std::vector<AdapterId>& adapters, PipelineRunner& runner, Deliver deliver);
    /// Parameters alone, for PartUse::best; between two windows as well.
    void keep(const std::vector<AdapterAtStep>& adapters, PipelineRunner& runner, Deliver deliver);
    /// The stage has taken a step of a batch.
    void stepped(const BatchPlan& batch);

    /// Of an adapter copied for a checkpoint, as they were then.
    const AdapterBank::Counters& counters(AdapterId adapter) const { return counters_.at(adapter); }

  private:
    struct Wanted {
        AdapterId adapter{};
        PartUse use = PartUse::checkpoint;
        std::int32_t kept_step = 0;  ///< PartKey::step
        std::int32_t last_step = 0;  ///< BatchPlan::step of the last one before the rounds behind
    };

    void want(Wanted wanted);
    void copy(const Wanted& wanted);
    void deliver(const PartKey& key);

    AdapterBank& bank_;
    int rank_;
    PipelineRunner* runner_ = nullptr;  ///< once begun
    Deliver deliver_;
    std::vector<Wanted> awaited_;  ///< in the order asked for
    std::map<AdapterId, AdapterBank::Counters> counters_;
};

}  // namespace loratrain
