#include "train/lane_groups.h"

#include "comm/rank_groups.h"
#include "plan/place.h"
#include "plan/tensor_shard.h"

namespace loratrain {

LaneGroups::LaneGroups(const MpiSession& mpi, const Plan& plan, const Backend& backend) {
    const RankPlace place = place_of(plan, mpi.rank());
    const std::int32_t lanes = plan.replicas[place.replica].tensor;
    if (plan.replicas.front().tensor == 1) return;  // which has most
    const std::int32_t sharers = lanes_per_key_value_head(plan.model, lanes);
    all_ = make_rank_group(mpi, mpi.rank() - place.lane, backend);
    key_value_sharers_ = make_rank_group(mpi, mpi.rank() - place.lane % sharers, backend);
    if (lanes > 1) return;
    all_.reset();
    key_value_sharers_.reset();
}

StageLanes LaneGroups::of_rank() const {
    return all_ ? StageLanes{all_.get(), key_value_sharers_.get()} : one_lane();
}

}  // namespace loratrain
