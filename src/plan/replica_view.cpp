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

std::vector<ReplicaView> degrees_of(const Plan& plan) {
    std::vector<ReplicaView> degrees;
    for (const ReplicaPlan& replica : plan.replicas) {  // by falling numbers
        const bool known = !degrees.empty() && degrees.back().replica.tensor == replica.tensor;
        if (!known) degrees.push_back(view_of(plan, replica));
    }
    return degrees;
}

const CostModel& costs_of(const Plan& plan, std::int32_t tensor) {
    for (const DegreeCosts& other : plan.other_costs) {
        if (other.tensor == tensor) return other.costs;
    }
    LORATRAIN_CHECK(plan.replicas.empty() || plan.replicas.front().tensor == tensor, "no costs of ",
                    tensor, " lanes");
    return plan.costs;
}

const CostModel& predicted_costs_of(const ReplicaView& view) {
    for (const DegreeCosts& measured : view.plan.measured) {
        if (measured.tensor == view.replica.tensor) return measured.costs;
    }
    return costs_of(view);
}

std::string prediction_source(const Plan& plan) {
    return (plan.measured.empty() ? plan.costs : plan.measured.front().costs).source;
}

ReplicaView only_replica(const Plan& plan) {
    LORATRAIN_CHECK(plan.replicas.size() == 1, "a plan of ", plan.replicas.size(), " replicas");
    return view_of(plan, plan.replicas.front());
}

}  // namespace loratrain
