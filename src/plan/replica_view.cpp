#include "plan/replica_view.h"

#include "base/error.h"
#include "plan/tensor_shard.h"

namespace loratrain {

ReplicaView view_of(const Plan& plan, const ReplicaPlan& replica) {
    return {plan, replica, lane_model(plan.model, replica.tensor)};
}

std::vector<ReplicaView> views_of(const Plan& plan) {
    std::vector<ReplicaView> views;
    for (const ReplicaPlan& replica : plan.replicas) views.push_back(view_of(plan, replica));
    return views;
}

const CostModel& costs_of(const Plan& plan, std::int32_t tensor) {
    for (const DegreeCosts& other : plan.other_costs) {
        if (other.tensor == tensor) return other.costs;
    }
    LORATRAIN_CHECK(plan.replicas.empty() || plan.replicas.front().tensor == tensor, "no costs of ",
                    tensor, " lanes");
    return plan.costs;
}

ReplicaView only_replica(const Plan& plan) {
    LORATRAIN_CHECK(plan.replicas.size() == 1, "a plan of ", plan.replicas.size(), " replicas");
    return view_of(plan, plan.replicas.front());
}

}  // namespace loratrain
