#pragma once

#include <cstddef>

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

/// The replica of a plan that has one alone, as all plans have that make_plan makes; else Error.
/// Whoever asks for it has to learn of more replicas some day.
ReplicaView only_replica(const Plan& plan);

}  // namespace loratrain
