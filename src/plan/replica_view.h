#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// One replica of a plan, with the model's sizes on a lane. It refers to the plan, which outlives
/// it and may get more adapters (extend_plan.h) but no other replicas.
struct ReplicaView {
    const Plan& plan;
    const ReplicaPlan& replica;
    ModelSpec lane_model;  ///< tensor_shard.h

    /// A view of another replica with as many lanes, which need not be in the plan.
    ReplicaView with(const ReplicaPlan& other) const { return {plan, other, lane_model}; }
};

ReplicaView view_of(const Plan& plan, const ReplicaPlan& replica);
/// Views of all replicas, in order.
std::vector<ReplicaView> views_of(const Plan& plan);
/// Views of the first replica with each number of lanes, in order.
std::vector<ReplicaView> degrees_of(const Plan& plan);

/// Costs of a lane. Error if the plan has none for `tensor` lanes.
const CostModel& costs_of(const Plan& plan, std::int32_t tensor);
inline const CostModel& costs_of(const ReplicaView& view) {
    return costs_of(view.plan, view.replica.tensor);
}

/// Costs for predictions of the replica: measured ones if there are any.
const CostModel& predicted_costs_of(const ReplicaView& view);

/// Source of these costs, for people.
std::string prediction_source(const Plan& plan);

/// True if a plan is always made with built-in costs: with tensor parallelism or several replicas.
inline bool has_built_in_costs(const Plan& plan) {
    return plan.replicas.size() > 1 || plan.replicas.front().tensor > 1;
}

/// The only replica of a plan. Error if it has several.
ReplicaView only_replica(const Plan& plan);

}  // namespace loratrain
