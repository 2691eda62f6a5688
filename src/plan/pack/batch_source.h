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

/// Global batches of one adapter: global_batch_size groups of samples at a time, in epoch order by
/// the adapter's seed (shuffled if the dataset says so). Batches do not cross epochs; the last one
/// of an epoch may be smaller, as in Hugging Face's Trainer. Of a dataset that grows they are what
/// has come (Arrivals); of steps whose batches have not, batches as plans expect them. It holds the
/// order of one epoch at a time.
class BatchSource {
  public:
    /// `job`, `plan` and `orders` outlive it.
    BatchSource(const Job& job, const Plan& plan, AdapterId adapter, SampleOrders& orders);

    /// Places in the dataset of the samples of global batch (adapter, step).
    std::vector<std::int32_t> samples(std::int32_t step);

    /// Global batch (adapter, step) for packing: at most its first `most_groups` groups.
    PendingBatch batch(std::int32_t step, std::span<const DatasetInfo> datasets,
                       std::size_t most_groups = std::numeric_limits<std::size_t>::max());

  private:
    PendingBatch arrived(const Arrivals& arrivals, std::int32_t step, std::size_t most) const;

    AdapterId adapter_;
    const AdapterJob& spec_;
    const DatasetJob& dataset_;
    const AdapterPlan& plan_;
    SampleOrders& orders_;
    std::int32_t epoch_ = -1;
    SampleOrder order_;
};

/// How much of a job's beginning counts.
struct StartLimits {
    std::int32_t rounds = 32;
    std::size_t samples = 16384;  ///< the round that reaches this number is the last
};

/// The first rounds of a job in which `adapters` train, with at most the first samples / adapters
/// groups of each batch. An adapter with fewer steps ends earlier.
std::vector<Round> rounds_at_start(const Job& job, const Plan& plan,
                                   std::span<const DatasetInfo> datasets,
                                   std::vector<AdapterId> adapters, const StartLimits& limits);

}  // namespace loratrain
