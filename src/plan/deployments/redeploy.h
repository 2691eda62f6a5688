#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Decides whether a run continues in another deployment.

/// What a run would gain by continuing in another deployment (LobRA, PVLDB 18(8), 2025, section
/// 5.1).
struct Redeployment {
    std::vector<ReplicaJob> deployment;  ///< the fastest other deployment; empty = none is faster
    double seconds_now = 0.0;   ///< predicted for the remaining work, in the present deployment
    double seconds_then = 0.0;  ///< predicted for the remaining work, in `deployment`
    double cost = 0.0;          ///< redeployment_seconds()

    /// Whether the gain is at least a tenth of the remaining seconds, and three times the cost.
    bool pays() const;
    /// Text for the log: "what is left takes about 2 h 3 min in [{tp: 2}], 1 h 10 min in ...".
    std::string text(const std::vector<ReplicaJob>& now) const;
};

/// Seconds to save, to read the weights again and to start. An estimate from the plan alone,
/// because what a run does must not depend on measurements.
double redeployment_seconds(const Plan& plan);

/// The job with only its remaining work: each adapter has `steps_left` steps, from the start of its
/// data. Adapters with 0 steps are left out.
Job rest_of(const Job& job, const std::vector<std::int32_t>& steps_left);

/// Compares job.parallel.deployment with the fastest deployment found for the remaining work
/// (find_deployments.h) in which the whole job can continue, all by built-in costs. No deployment
/// is looked for if the remaining work is too short to pay for any change. `plan`: the plan of the
/// present deployment. `job`: has AdapterJob::ended set where steps_left is 0. Depends on the
/// arguments alone.
Redeployment judge_deployment(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets, const Cluster& cluster,
                              const std::vector<std::int32_t>& steps_left);

}  // namespace loratrain
