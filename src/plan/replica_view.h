#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// One replica of a plan, with the sizes that its lanes compute with. Refers: the plan outlives it
/// and may get more adapters (extend_plan.h), but no other replicas.
struct ReplicaView {
    const Plan& plan;
    const ReplicaPlan& replica;
    ModelSpec lane_model;  ///< tensor_shard.h

    /// The same with another replica of as many lanes, which might come to be one of the plan's.
    ReplicaView with(const ReplicaPlan& other) const { return {plan, other, lane_model}; }
};

ReplicaView view_of(const Plan& plan, const ReplicaPlan& replica);
/// Of all replicas, in order.
std::vector<ReplicaView> views_of(const Plan& plan);
/// Of the first replica with each number of lanes, in order.
std::vector<ReplicaView> degrees_of(const Plan& plan);

/// Costs of a lane of the replica; Error where the plan has none for so many lanes.
const CostModel& costs_of(const Plan& plan, std::int32_t tensor);
inline const CostModel& costs_of(const ReplicaView& view) {
    return costs_of(view.plan, view.replica.tensor);
}

/// Costs that predictions for the replica are made with: measured ones where there are any.
const CostModel& predicted_costs_of(const ReplicaView& view);

/// Where they are from.
std::string prediction_source(const Plan& plan);

/// Whether a plan is made with built-in costs whatever is measured: of lanes, or several replicas.
inline bool has_built_in_costs(const Plan& plan) {
    return plan.replicas.size() > 1 || plan.replicas.front().tensor > 1;
}

/// The replica of a plan that has one alone; else Error.
ReplicaView only_replica(const Plan& plan);

}  // namespace loratrain
