#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "adapter/adapter_bank.h"
#include "train/adapter_parts.h"
#include "train/pipeline_runner.h"

namespace loratrain {

/// Copies this rank's state of adapters as it is between two rounds, while later rounds train: each
/// adapter as soon as it has taken its last step before them.
class StateCopies {
  public:
    /// Takes a copy: one whole piece for each part.
    using Deliver = std::function<void(AdapterPiece)>;

    /// The bank outlives it.
    StateCopies(AdapterBank& bank, int rank) : bank_(bank), rank_(rank) {}

    /// Copies everything that a checkpoint stores. Call it between two windows of the runner's
    /// stream: later windows belong to later rounds. Copies of the checkpoint before must be
    /// complete. Without `deliver` only counters are noted.
    void begin(const std::vector<AdapterId>& adapters, PipelineRunner& runner, Deliver deliver);
    /// Copies parameters for PartUse::kept. Call it between two windows, too.
    void keep(const std::vector<AdapterAtStep>& adapters, PipelineRunner& runner, Deliver deliver);
    /// The stage has taken the batch's optimizer step.
    void stepped(const BatchPlan& batch);

    /// Counters of an adapter when it was copied for a checkpoint.
    const AdapterBank::Counters& counters(AdapterId adapter) const { return counters_.at(adapter); }

  private:
    struct Wanted {
        AdapterId adapter{};
        PartUse use = PartUse::checkpoint;
        std::int32_t kept_step = 0;  ///< PartKey::step
        std::int32_t last_step = 0;  ///< BatchPlan::step of its last batch before the later rounds
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
