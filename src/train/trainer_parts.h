#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/cost/met_shapes.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/job_warnings.h"
#include "train/orders/stop_conditions.h"
#include "train/records/run_records.h"
#include "train/stage_run.h"

namespace loratrain {

class DeviceSampler;
class DispatcherLink;

/// The run that rank 0 of a worker leads; all of it outlives the trainer.
struct RunParts {
    Job& job;  ///< grows with what comes through the inbox, as all of the next four
    Plan& plan;
    DatasetFiles& files;
    std::vector<DatasetInfo>& datasets;  ///< root only, else empty
    RunIdentity& identity;
    StopConditions& stop;
    StatusView view;  ///< root only, may be empty
    BaseFacts base{};
    std::string checkpoints{};  ///< root of the checkpoints; "" = checkpoint_folder()
    MetShapes met_shapes{};     ///< before the training; root only
    bool keeps_records = true;  ///< resolved.yaml and plan.yaml, as the job grows
    /// Of the leader of one of several workers; null = a joint run.
    DispatcherLink* dispatcher = nullptr;
    /// Whether the run is to go on in another deployment for what is left of this state; asked with
    /// the pipeline empty. Root only; empty = it never is.
    std::function<bool(const RunState&)> redeploys = {};
    DeviceSampler* sampler = nullptr;  ///< looked after while training goes on; null = none
};

/// What a rank brings to training.
struct TrainerParts : RunParts {
    const MpiSession& mpi;
    StageRun& run;
};

}  // namespace loratrain
