#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Plans a single window: of training, or of evaluations.

/// Progress of scheduling: steps already scheduled per adapter.
struct Progress {
    std::int32_t round = 0;
    std::vector<std::int32_t> steps;  ///< per AdapterId
    std::vector<bool> stopped;        ///< per AdapterId: not scheduled any more
    /// Per AdapterId: a step, besides the last, at which a block has to end. Empty = none.
    std::vector<std::int32_t> stops{};
    /// Per AdapterId: step of the trial's next rung before its last step; 0 = none. Empty = no
    /// adapter has one.
    std::vector<std::int32_t> rungs{};
};

/// The next `rounds` rounds as a stream of one window (schedule_stream.h), which begins and drains.
/// Fewer rounds if all adapters finish earlier; an empty window if nothing is left. The last block
/// ends with the window.
JointWindow plan_joint_window(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets, const Progress& progress,
                              std::int32_t rounds);
/// The same for a plan with one replica.
Window plan_window(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                   const Progress& progress, std::int32_t rounds);

/// A forward-only window over the eval samples of `adapters`, without adapters whose dataset has
/// none. Samples are dealt to replicas as those of a round.
JointWindow plan_joint_eval_window(const Job& job, const Plan& plan,
                                   std::span<const DatasetInfo> datasets,
                                   const std::vector<AdapterId>& adapters);

}  // namespace loratrain
