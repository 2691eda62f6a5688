#pragma once

#include <vector>

#include "plan/deploy/candidates.h"
#include "plan/deploy/memory_hints.h"
#include "plan/plan_report.h"

namespace loratrain {

struct Deployment {
    Candidate chosen;
    std::vector<LayoutTrial> trials;  ///< search_layout.h
};

/// How the planner splits the layers of `inputs`.
LayerSplit layer_split(const DeploymentInputs& inputs);

/// By the rules of make_plan.h. Where nothing fits, the last candidate that was looked at: what it
/// lacks is what there is to say.
Deployment choose_deployment(const DeploymentInputs& inputs);

}  // namespace loratrain
