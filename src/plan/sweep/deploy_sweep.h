#pragma once

#include <cstdint>
#include <vector>

#include "plan/sweep/assign_trials.h"
#include "plan/sweep/sweep_bounds.h"
#include "plan/sweep/sweep_shapes.h"

namespace loratrain {

/// Finds the workers of a sweep.

/// Shape of a sweep's workers: equal replicas, each of which takes trials for itself.
struct SweepShape {
    std::int32_t tensor = 1;
    std::int32_t stages = 1;
    std::int32_t replicas = 1;
    std::int64_t microbatch_tokens = 0;

    std::int32_t ranks() const { return tensor * stages * replicas; }
    friend bool operator==(const SweepShape&, const SweepShape&) = default;
};

/// Which worker trains which trials, and the predicted time.
struct SweepPlan {
    SweepShape shape;
    std::vector<std::vector<AdapterId>> queues;  ///< per replica, in order
    std::vector<double> queue_seconds;           ///< per replica
    double seconds = 0.0;                        ///< until all trials have ended
    double bound = 0.0;    ///< lower bound over all shapes: max(longest trial, work / ranks)
    double staying = 0.0;  ///< the same if trials stay in their replica (SweepBounds)
    double ar = 1.0;       ///< upper bound of seconds / least seconds with this shape (ratio_bound)
};

/// A shape and the seconds of its best assignment; for shapes that were not refined, of the
/// contiguous one.
struct SweepOption {
    SweepShape shape;
    double seconds = 0.0;
    Recompute recompute = Recompute::none;
};

struct SweepDeployment {
    SweepPlan plan;
    std::vector<SweepOption> options;  ///< all shapes with their best microbatches, fastest first
    SweepReplica replica;              ///< of the plan's shape
    std::vector<QueueRun> runs;        ///< per queue of the plan
};

/// Finds workers and queues of a sweep on all ranks of the cluster. For every shape R x <TP, PP>,
/// one pipeline included, the contiguous assignment is simulated. Shapes within 5% of the fastest
/// get all steps of assign_trials.h. Among shapes within 2% of the fastest the smallest replicas
/// win, then the fastest. Every rank is used. InputError if no trial fits with any shape.
SweepDeployment deploy_sweep(const SweepTask& task, const AssignLimits& limits = {});
/// The same with shapes that are planned already.
SweepDeployment deploy_sweep(const SweepTask& task, SweepShapes& shapes,
                             const AssignLimits& limits = {});

}  // namespace loratrain
