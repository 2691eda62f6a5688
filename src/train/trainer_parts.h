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

/// What a trainer works with: the run, and this rank's parts.

/// The run of a worker. All of it outlives the trainer. Inbox files add to `job` and the four
/// members after it.
struct RunParts {
    Job& job;
    Plan& plan;
    DatasetFiles& files;
    std::vector<DatasetInfo>& datasets;  ///< root only, else empty
    RunIdentity& identity;
    StopConditions& stop;
    StatusView view;  ///< root only, may be empty
    BaseFacts base{};
    std::string checkpoints{};  ///< root folder of checkpoints; "" = checkpoint_folder()
    MetShapes met_shapes{};     ///< shapes that stages have met before training; root only
    bool keeps_records = true;  ///< update resolved.yaml and plan.yaml when the job grows
    /// Link of rank 0 of one of several workers; null = a joint run.
    DispatcherLink* dispatcher = nullptr;
    /// True if another deployment pays for the adapters that the state leaves. Asked with an empty
    /// pipeline. Root only; empty = never.
    std::function<bool(const RunState&)> redeploys = {};
    std::function<void()> checkpointed = {};  ///< called after each checkpoint; may be empty
    DeviceSampler* sampler = nullptr;         ///< served while training goes on; null = none
};

/// A rank's part of training.
struct TrainerParts : RunParts {
    const MpiSession& mpi;
    StageRun& run;
};

}  // namespace loratrain
