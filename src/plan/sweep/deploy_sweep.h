#pragma once

#include <cstdint>
#include <vector>

#include "plan/sweep/assign_trials.h"
#include "plan/sweep/sweep_bounds.h"
#include "plan/sweep/sweep_shapes.h"

namespace loratrain {

/// Replicas of a sweep that are cut alike and take trials each for itself (workers).
struct SweepShape {
    std::int32_t tensor = 1;
    std::int32_t stages = 1;
    std::int32_t replicas = 1;
    std::int64_t microbatch_tokens = 0;

    std::int32_t ranks() const { return tensor * stages * replicas; }
    friend bool operator==(const SweepShape&, const SweepShape&) = default;
};

/// Who trains which trials, and what that is predicted to take.
struct SweepPlan {
    SweepShape shape;
    std::vector<std::vector<AdapterId>> queues;  ///< per replica, in order
    std::vector<double> queue_seconds;           ///< per replica
    double seconds = 0.0;                        ///< until all have ended
    double bound = 0.0;    ///< no shape is faster: max(longest trial, work / ranks), the least
    double staying = 0.0;  ///< the same where trials stay in their replica (SweepBounds)
    double ar = 1.0;       ///< at most so many times the least time with this shape (ratio_bound)
};

/// A shape and the seconds of its best assignment; of those that were not refined, of the
/// contiguous one.
struct SweepOption {
    SweepShape shape;
    double seconds = 0.0;
};

struct SweepDeployment {
    SweepPlan plan;
    std::vector<SweepOption> options;  ///< every shape, with its best microbatches, fastest first
    SweepReplica replica;              ///< of the plan's shape
    std::vector<QueueRun> runs;        ///< of the plan's queues
};

/// Replicas and queues of a sweep on all ranks of the cluster: for every shape R x <TP, PP>,
/// today's single pipeline among them, the contiguous assignment is simulated; the shapes within 5%
/// of the fastest are assigned by all rules of assign_trials.h. Of those within 2% of the fastest
/// the one of the smallest replicas, of these the fastest. InputError where no trial fits with any
/// shape; ranks that would stay unused are not allowed.
SweepDeployment deploy_sweep(const SweepTask& task, const AssignLimits& limits = {});
/// The same with the shapes known already.
SweepDeployment deploy_sweep(const SweepTask& task, SweepShapes& shapes,
                             const AssignLimits& limits = {});

}  // namespace loratrain
