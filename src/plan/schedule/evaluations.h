#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/pack/pack_block.h"
#include "plan/replica_view.h"

namespace loratrain {

/// An evaluation of an adapter whose dataset has eval samples, after so many of its steps.
struct DueEvaluation {
    AdapterId adapter{};
    std::int32_t step = 0;
    std::int32_t round = 0;
};

/// Of those that train then: eval.every_steps is due before the round.
bool all_are_evaluated(const Job& job, std::int32_t round);

bool has_eval_samples(const Job& job, std::span<const DatasetInfo> datasets, AdapterId adapter);

/// The datasets with no more eval samples than the first `most`, in whole groups, and no others.
std::vector<DatasetInfo> first_eval_samples(std::span<const DatasetInfo> datasets,
                                            std::int64_t most);

/// The datasets with all samples as eval samples: those to train on, then those to evaluate.
std::vector<DatasetInfo> all_samples_as_eval(std::span<const DatasetInfo> datasets);

/// Its batch, but for its microbatches.
BatchPlan evaluation_batch(const Job& job, std::span<const DatasetInfo> datasets,
                           const DueEvaluation& due);

/// All eval samples of the adapter, as a batch to be packed.
PendingBatch evaluation_samples(const Job& job, const Plan& plan,
                                std::span<const DatasetInfo> datasets, const DueEvaluation& due);

/// Microbatches of evaluations that are packed together, at least `at_least` where there are as
/// many samples (pack_microbatches.h).
std::vector<Microbatch> evaluation_microbatches(const Round& samples, std::int64_t capacity,
                                                std::int64_t at_least);

/// Appends microbatches of the window's batches from `first_batch` on and notes where those lie,
/// and as padding the rows that they train; the microbatches' columns as well.
void append_microbatches(const Job& job, const ReplicaView& view, std::size_t first_batch,
                         std::vector<Microbatch> microbatches, Window& window);

}  // namespace loratrain
