#include "train/stage_run.h"

#include "comm/rank_groups.h"
#include "plan/place.h"
#include "plan/replica_view.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

ReplicaView view_for(const Plan& plan, int rank) {
    return view_of(plan, plan.replicas[place_of(plan, rank).replica]);
}

}  // namespace

StageRun::StageRun(const Parts& parts, int rank, Record record)
    : StageRun(parts, view_for(parts.plan, rank), place_of(parts.plan, rank).stage, record) {}

StageRun::StageRun(const Parts& parts, const ReplicaView& view, std::size_t stage_index,
                   Record record)
    : communicator_(parts.communicator),
      stage_(parts.job, view, stage_index, parts.weights, parts.backend, objective_of, parts.lanes,
             parts.shared_layers),
      recorder_(parts.job, view, stage_index, parts.backend, record == Record::spans,
                parts.lanes.index()),
      recording_(parts.communicator, recorder_),
      runner_(parts.job, view, stage_index, stage_,
              record == Record::nothing ? parts.communicator : recording_, parts.backend,
              parts.exchange),
      loader_(parts.files, datasets_of_adapters(parts.job), reads_tokens(stage_.plan())) {
    recorder_.record_transfers(stage_.layer_stream(), stage_.activation_offload());
    if (record != Record::nothing) runner_.record_with(recorder_);
}

const StagePlan& stage_of(const Plan& plan, int rank) {
    const RankPlace place = place_of(plan, rank);
    return plan.replicas[place.replica].stages[place.stage];
}

bool reads_tokens(const StagePlan& stage) {
    return stage.has_embedding || stage.has_head;
}

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
