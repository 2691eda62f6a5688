#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/rank_group.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "data/loader.h"
#include "io/weights/base_weights.h"
#include "measure/recording_communicator.h"
#include "measure/trace_recorder.h"
#include "model/stage.h"
#include "plan/plan.h"
#include "train/pipeline_runner.h"

namespace loratrain {

/// The groups in which a rank sums with the other lanes of its stage, as a plan deploys it.
class LaneGroups {
  public:
    /// Collective over the session, which has the plan's ranks; so is the end. Without tensor
    /// parallelism there is nothing to do. Sums are of the backend's memory; it outlives the
    /// groups.
    LaneGroups(const MpiSession& mpi, const Plan& plan, const Backend& backend);

    StageLanes of_rank() const;

  private:
    std::unique_ptr<RankGroup> all_;  ///< null: one lane
    std::unique_ptr<RankGroup> key_value_sharers_;
};

/// The stage that a plan gives to a rank.
const StagePlan& stage_of(const Plan& plan, int rank);

/// A rank's stage with all that works it: the one place where a run is put together.
class StageRun {
  public:
    enum class Record : std::uint8_t { nothing, costs, spans };
    /// What a stage runs on; all of it outlives the run.
    struct Parts {
        const Job& job;
        const Plan& plan;
        const WeightSource& weights;
        const DatasetFiles& files;  ///< read where reads_tokens()
        Communicator& communicator;
        Backend& backend;
        StageLanes lanes = one_lane();          ///< this rank's
        GradientExchange* exchange = nullptr;   ///< among several replicas
        SharedLayers* shared_layers = nullptr;  ///< of weights that ranks have between them
    };

    /// Loads the stage's weights and allocates all it needs; with `shared_layers` collective over
    /// all ranks.
    StageRun(const Parts& parts, int rank, Record record);

    Stage& stage() { return stage_; }
    /// Knows nothing with Record::nothing.
    TraceRecorder& recorder() { return recorder_; }
    PipelineRunner& runner() { return runner_; }
    Loader& loader() { return loader_; }
    /// Without a record.
    Communicator& communicator() { return communicator_; }

  private:
    StageRun(const Parts& parts, const ReplicaView& view, std::size_t stage_index, Record record);

    Communicator& communicator_;
    Stage stage_;
    TraceRecorder recorder_;
    RecordingCommunicator recording_;
    PipelineRunner runner_;
    Loader loader_;
};

/// The first and the last stage read token ids and targets, those between only how samples lie.
bool reads_tokens(const StagePlan& stage);

}  // namespace loratrain
