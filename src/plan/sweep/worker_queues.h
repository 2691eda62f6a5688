#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Who is to train what is left of a run on equal workers.
struct WorkerQueues {
    std::vector<std::vector<AdapterId>> queues;  ///< per worker, in order
    double seconds = 0.0;  ///< predicted until all have ended, with evaluations; 0 = not known
};

/// Assigns adapters to workers by simulation (assign_trials.h) with the costs of `plan`, a
/// worker's; in a queue those of higher priority come first, then the longest. `steps_left`: per
/// AdapterId; adapters without any are left out. `datasets`: by DatasetId.
WorkerQueues queue_for_workers(const Job& job, const Plan& plan,
                               std::span<const DatasetInfo> datasets,
                               std::span<const std::int32_t> steps_left, int workers);

}  // namespace loratrain
