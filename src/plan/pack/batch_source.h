#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plan/pack/pack_microbatches.h"
#include "plan/pack/sample_order.h"
#include "plan/plan.h"

namespace loratrain {

/// Global batches of one adapter: epoch order from the adapter's seed (shuffled when the dataset
/// says so) of its groups of samples, of which global_batch_size make a batch; batches do not cross
/// epochs, the last of an epoch may be smaller (as HF). Holds the order of the epoch it was asked
/// for last.
class BatchSource {
  public:
    /// All but `adapter` are kept by reference.
    BatchSource(const Job& job, const Plan& plan, AdapterId adapter, SampleOrders& orders);

    /// Positions in the dataset of global batch (adapter, step).
    std::vector<std::int32_t> samples(std::int32_t step);

    /// Global batch (adapter, step) for packing; of its groups at most the first `most_groups`.
    PendingBatch batch(std::int32_t step, std::span<const DatasetInfo> datasets,
                       std::size_t most_groups = std::numeric_limits<std::size_t>::max());

  private:
    AdapterId adapter_;
    const AdapterJob& spec_;
    const DatasetJob& dataset_;
    const AdapterPlan& plan_;
    SampleOrders& orders_;
    std::int32_t epoch_ = -1;
    SampleOrder order_;
};

/// How much of a job's beginning is looked at.
struct StartLimits {
    std::int32_t rounds = 32;
    std::size_t samples = 16384;  ///< the round that reaches them is the last
};

/// The first rounds of a job in which `adapters` train; of a batch at most the first
/// samples / adapters groups. Shorter ones end earlier, as their steps do.
std::vector<Round> rounds_at_start(const Job& job, const Plan& plan,
                                   std::span<const DatasetInfo> datasets,
                                   std::vector<AdapterId> adapters, const StartLimits& limits);

}  // namespace loratrain
