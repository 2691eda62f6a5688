#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/cost/met_shapes.h"
#include "plan/plan.h"

namespace loratrain {

/// Who is to train what is left of a run on equal workers.
struct WorkerQueues {
    std::vector<std::vector<AdapterId>> queues;  ///< per worker, in order
    /// Of `assignment: plora` instead: who trains together, in the order in which they go to
    /// whichever worker has ended what it had.
    std::vector<std::vector<AdapterId>> packed_jobs;
    /// Predicted until all have ended, with evaluations and what shapes of microbatches take that
    /// are new to the worker which takes longest; 0 = not known.
    double seconds = 0.0;
};

/// Assigns adapters to workers by simulation (assign_trials.h), or with `assignment: plora` to
/// packed jobs by PLoRA's Algorithms 1 and 2 (job_planner.h), whose only degree is a worker, with
/// the costs of `plan`, a worker's; in a queue those of higher priority come first, then the
/// longest. `steps_left`: per AdapterId; adapters without any are left out. `datasets`: by
/// DatasetId. `met`: shapes that the stages of a worker have met; new ones are looked for in a few
/// rounds of the adapters that train at a time, each time that one begins, or of some such times
/// where there are many.
WorkerQueues queue_for_workers(const Job& job, const Plan& plan,
                               std::span<const DatasetInfo> datasets,
                               std::span<const std::int32_t> steps_left, int workers,
                               const MetShapes& met = {});

}  // namespace loratrain
