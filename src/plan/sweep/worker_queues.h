#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/cost/met_shapes.h"
#include "plan/plan.h"
#include "plan/sweep/assign_trials.h"

namespace loratrain {

/// Assignment of a run's remaining adapters to equal workers.
struct WorkerQueues {
    std::vector<std::vector<AdapterId>> queues;  ///< per worker, in order
    /// With `assignment: plora`, instead of queues: adapters that train together, in the order in
    /// which they go to workers that are free.
    std::vector<std::vector<AdapterId>> packed_jobs;
    std::vector<double> queue_seconds;  ///< per worker, of its queue without what comes first
    /// Predicted seconds until all adapters have ended, with evaluations and the time of new shapes
    /// on the slowest worker; 0 = not known.
    double seconds = 0.0;
};

/// Assigns adapters to workers by simulation (assign_trials.h), with the costs of `plan`, a
/// worker's plan. A queue has higher priorities first, then the longest adapters. With `assignment:
/// plora`: packed jobs by PLoRA's Algorithms 1 and 2 (job_planner.h) with one degree, a worker.
/// `steps_left`: per AdapterId; adapters without steps are left out. `datasets`: by DatasetId.
/// `met`: shapes that a worker's stages have met. New shapes are counted in a few rounds after each
/// start of an adapter, or after some of the starts if there are many. `limits`: of the search for
/// an assignment.
WorkerQueues queue_for_workers(const Job& job, const Plan& plan,
                               std::span<const DatasetInfo> datasets,
                               std::span<const std::int32_t> steps_left, int workers,
                               const MetShapes& met = {}, const AssignLimits& limits = {});

}  // namespace loratrain
