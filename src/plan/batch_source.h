#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Global batches of one adapter: epoch order from the adapter's seed (shuffled when the dataset
/// says so); batches do not cross epochs, the last of an epoch may be smaller (as HF). Remembers
/// the epoch it was asked for last.
class BatchSource {
  public:
    /// All kept by reference.
    BatchSource(const Job& job, const Plan& plan, AdapterId adapter);

    /// Positions in the dataset of global batch (adapter, step).
    std::vector<std::int32_t> samples(std::int32_t step);

  private:
    const AdapterJob& spec_;
    const DatasetJob& dataset_;
    const AdapterPlan& plan_;
    std::int32_t epoch_ = -1;
    std::vector<std::int32_t> order_;
};

}  // namespace loratrain
