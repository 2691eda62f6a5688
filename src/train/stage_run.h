#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/rank_group.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "data/loader.h"
#include "io/weights/base_weights.h"
#include "measure/trace_recorder.h"
#include "model/stage.h"
#include "plan/plan.h"
#include "train/pipeline_runner.h"

namespace loratrain {

/// A rank's stage, with the objects that drive it.

/// Groups of ranks in which the lanes of a stage sum (tensor parallelism).
class LaneGroups {
  public:
    /// Empty without tensor parallelism. Sums are computed in the backend's memory. `mpi` has the
    /// plan's ranks; the backend outlives the groups. Construction and destruction are collective.
    LaneGroups(const MpiSession& mpi, const Plan& plan, const Backend& backend);

    StageLanes of_rank() const;

  private:
    std::unique_ptr<RankGroup> all_;  ///< null: one lane
    std::unique_ptr<RankGroup> key_value_sharers_;
};

/// The rank's stage in the plan.
const StagePlan& stage_of(const Plan& plan, int rank);

/// A rank's stage with everything that drives it: recorder, runner, loader.
class StageRun {
  public:
    enum class Record : std::uint8_t { nothing, costs, spans };
    /// Everything that a stage needs. All of it outlives the run.
    struct Parts {
        const Job& job;
        const Plan& plan;
        const WeightSource& weights;
        const DatasetFiles& files;  ///< read if reads_tokens()
        Communicator& communicator;
        Backend& backend;
        StageLanes lanes = one_lane();          ///< this rank's
        GradientExchange* exchange = nullptr;   ///< among several replicas
        SharedLayers* shared_layers = nullptr;  ///< weights that several ranks share
    };

    /// Loads the stage's weights and allocates its memory. Collective with `shared_layers`.
    StageRun(const Parts& parts, int rank, Record record);

    Stage& stage() { return stage_; }
    /// Empty with Record::nothing.
    TraceRecorder& recorder() { return recorder_; }
    PipelineRunner& runner() { return runner_; }
    Loader& loader() { return loader_; }
    /// The communicator itself, whose messages are not recorded.
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

/// True for the first and the last stage: they read token ids and targets. The stages between need
/// the lengths of samples only.
bool reads_tokens(const StagePlan& stage);

}  // namespace loratrain
