#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// What a run would gain by going on in another deployment (LobRA, PVLDB 18(8), 2025, section 5.1).
struct Redeployment {
    std::vector<ReplicaJob> deployment;  ///< the fastest other one; empty = none is
    double seconds_now = 0.0;            ///< predicted of what is left as it is deployed
    double seconds_then = 0.0;           ///< and in the other one
    double cost = 0.0;                   ///< redeployment_seconds

    /// The gain is at least a tenth of what is left, and three times the cost.
    bool pays() const;
    /// "what is left takes 2 h 3 min in [{tp: 2}], 1 h 10 min in ...", for the log.
    std::string text(const std::vector<ReplicaJob>& now) const;
};

/// What it takes to save, to read the weights anew and to begin: an estimate from the plan alone,
/// as what a run does must not depend on what it measures.
double redeployment_seconds(const Plan& plan);

/// The job with what its adapters have still to train, each `steps_left` steps from the start of
/// its data; those with 0 are not in it.
Job rest_of(const Job& job, const std::vector<std::int32_t>& steps_left);

/// Of deployments that are found for the rest of the job (find_deployments.h) the fastest that the
/// whole of it can go on in, beside job.parallel.deployment, all by built-in costs. Where the rest
/// is too short to pay whatever is found, none is looked for. `plan`: of that deployment; `job`:
/// with AdapterJob::ended where steps_left is 0. Depends on the arguments alone.
Redeployment judge_deployment(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets, const Cluster& cluster,
                              const std::vector<std::int32_t>& steps_left);

}  // namespace loratrain
