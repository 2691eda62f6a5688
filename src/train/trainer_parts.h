#pragma once

#include <vector>

#include "data/loader.h"
#include "measure/trace_recorder.h"
#include "model/stage.h"
#include "train/checkpoint/checkpoint.h"
#include "train/orders/stop_conditions.h"
#include "train/pipeline_runner.h"
#include "train/records/run_records.h"

namespace loratrain {

/// What a rank brings to training; all of it outlives the trainer.
struct TrainerParts {
    const MpiSession& mpi;
    Job& job;  ///< grows with what comes through the inbox, as all of the next four
    Plan& plan;
    DatasetFiles& files;
    std::vector<DatasetInfo>& datasets;  ///< root only, else empty
    RunIdentity& identity;
    bool with_tokens;  ///< this rank reads tokens
    Stage& stage;
    PipelineRunner& runner;
    Loader& loader;
    StopConditions& stop;
    TraceRecorder& recorder;
    StatusView view;  ///< root only, may be empty
};

}  // namespace loratrain
