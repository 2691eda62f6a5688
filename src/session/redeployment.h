#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// Whether the job leaves its deployment to this program, all the time.
bool may_redeploy(const Job& job);

/// The state in a checkpoint.
RunState state_in(const std::string& checkpoint, const Job& job);

/// Notes the adapters that are not among `trained` as ended; empty = none has.
void mark_ended(Job& job, const std::vector<AdapterId>& trained);

/// The job for what is left of `state` in a faster deployment, where to change pays
/// (plan/deployments/redeploy.h), and says so, or why not, in the log. `plan`: as the job is
/// deployed. Depends on the arguments alone.
std::optional<Job> redeployed(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets, const Cluster& cluster,
                              const RunState& state);

}  // namespace loratrain
