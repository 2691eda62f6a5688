#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Where the training stands: optimizer steps already scheduled per adapter; `stopped` adapters
/// (failed or finished early) are not scheduled any more.
struct Progress {
    std::int32_t round = 0;
    std::vector<std::int32_t> steps;  ///< per AdapterId
    std::vector<bool> stopped;        ///< per AdapterId
    /// Per AdapterId the step at which a block must end, besides the last; empty = none.
    std::vector<std::int32_t> stops{};
    /// Per AdapterId the step at which a trial comes to a rung before its last step; 0 = no such;
    /// empty = none have any.
    std::vector<std::int32_t> rungs{};
};

/// The next `rounds` rounds (fewer when all adapters finish earlier; an empty window when nothing
/// is left) as a stream of one window (schedule_stream.h), from an empty pipeline to an empty one.
/// The last block ends with the window.
JointWindow plan_joint_window(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets, const Progress& progress,
                              std::int32_t rounds);
/// Of a plan with one replica.
Window plan_window(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                   const Progress& progress, std::int32_t rounds);

/// Forward-only window over the eval samples of the given adapters (those whose dataset has any),
/// which are dealt to the replicas as those of a round are.
JointWindow plan_joint_eval_window(const Job& job, const Plan& plan,
                                   std::span<const DatasetInfo> datasets,
                                   const std::vector<AdapterId>& adapters);
/// Of a plan with one replica.
Window plan_eval_window(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                        const std::vector<AdapterId>& adapters);

/// Samples of global batch (adapter, step): epoch order from the adapter's seed (shuffled when the
/// dataset says so), batches do not cross epochs, the last of an epoch may be smaller (as HF).
std::vector<std::int32_t> batch_samples(const Job& job, const Plan& plan, AdapterId adapter,
                                        std::int32_t step);

}  // namespace loratrain
