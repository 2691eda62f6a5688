#include "plan/replica_view.h"

#include "base/error.h"
#include "plan/tensor_shard.h"

namespace loratrain {

ReplicaView view_of(const Plan& plan, const ReplicaPlan& replica) {
    return {plan, replica, lane_model(plan.model, replica.tensor)};
}

ReplicaView only_replica(const Plan& plan) {
    LORATRAIN_CHECK(plan.replicas.size() == 1, "a plan of ", plan.replicas.size(), " replicas");
    return view_of(plan, plan.replicas.front());
}

}  // namespace loratrain
