#pragma once

#include <span>
#include <vector>

#include "plan/deploy/memory_hints.h"
#include "plan/deploy/workload.h"
#include "plan/plan.h"
#include "plan/plan_report.h"

namespace loratrain {

/// A deployment that a plan may get, and who trains from the start beside it.
struct Candidate {
    ReplicaPlan replica;
    std::vector<AdapterId> first_admitted;
};

/// What candidates are made from and compared by; kept by reference.
struct DeploymentInputs {
    const Job& job;
    const Plan& constants;  ///< the plan without replicas, first_admitted and memory
    std::span<const DatasetInfo> datasets;
    const Workload& work;
    const CostModel& built_in;  ///< sizes are chosen by it: measured costs differ between runs
    const ReplicaPlan* former;  ///< of the run that is continued, or null
    std::int32_t tensor = 1;    ///< lanes of a stage
    std::int32_t stages = 1;
    std::int32_t pad_columns = 0;
    std::int32_t saved_columns = 0;
};

struct Deployment {
    Candidate chosen;
    std::vector<LayoutTrial> trials;  ///< search_layout.h
};

/// The constants with the candidate as the only replica; without memory.
Plan plan_with(const Plan& constants, const Candidate& candidate);

/// How the planner splits the layers of `inputs`.
LayerSplit layer_split(const DeploymentInputs& inputs);

/// By the rules of make_plan.h. Where nothing fits, the last candidate that was looked at: what it
/// lacks is what there is to say.
Deployment choose_deployment(const DeploymentInputs& inputs);

}  // namespace loratrain
