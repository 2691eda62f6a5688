#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "config/command_line.h"
#include "plan/cost/met_shapes.h"
#include "plan/deployments/find_deployments.h"
#include "plan/deployments/worker_shape.h"
#include "plan/predict/predict.h"
#include "session/job_inputs.h"

namespace loratrain {

/// The plan and the prediction that a dry run prints.

/// A job planned for a cluster, or for one of its workers, and the prediction of its speed.
struct PlannedPreview {
    Job job;
    Cluster cluster;
    WorkerShape workers;
    std::optional<FoundDeployments> found;
    PlannedJob planned;
    MetShapes prepared;
    Prediction prediction;    ///< of one worker with all adapters, where there are workers
    WorkerQueues queues;      ///< what each worker is to train
    double seconds = 0.0;     ///< predicted, of the whole job
    double planned_in = 0.0;  ///< processor seconds
    double predicted_in = 0.0;
    std::string costs_from;  ///< the file of measured costs; "" = costs are built in
    /// What the run with these costs observed: "240 microbatches"; "" = nothing.
    std::string observed;

    const Plan& plan() const { return planned.plan; }
    /// Of all ranks together.
    double tokens_per_second() const {
        return seconds > 0.0 ? static_cast<double>(prediction.tokens) / seconds : 0.0;
    }
};

/// Plans and predicts the job. Without --device the costs are those that runs on this host have
/// kept, if there are any. Throws InputError if the job does not fit.
PlannedPreview planned_preview(const CommandLine& command_line, const MpiSession& mpi, Job job,
                               const JobInputs& inputs, Cluster cluster);

}  // namespace loratrain
