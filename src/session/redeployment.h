#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// Moves a run to another deployment.

/// True if the job lets the program change the deployment at any time.
bool may_redeploy(const Job& job);

/// The state in a checkpoint.
RunState state_in(const std::string& checkpoint, const Job& job);

/// Marks all adapters except `trained` as ended; empty = none.
void mark_ended(Job& job, const std::vector<AdapterId>& trained);

/// The job with a faster deployment for the adapters that `state` leaves, if a change pays
/// (plan/deployments/redeploy.h); none otherwise. Logs the decision and why. `plan`: the current
/// deployment. Depends on the arguments only.
std::optional<Job> redeployed(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets, const Cluster& cluster,
                              const RunState& state);

}  // namespace loratrain
