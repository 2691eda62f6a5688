#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "config/command_line.h"
#include "plan/cost/met_shapes.h"
#include "plan/deployments/find_deployments.h"
#include "plan/predict/predict.h"
#include "plan/sweep/worker_queues.h"
#include "session/job_inputs.h"
#include "session/worker_group.h"

namespace loratrain {

/// Rounds at the start of a job that are simulated to predict its speed.
inline constexpr std::int32_t rounds_predicted = 16;

/// A job planned for a cluster, or for one of its workers, and the prediction of its speed.
struct PlannedPreview {
    Job job;
    Cluster cluster;
    WorkerShape workers;
    std::optional<FoundDeployments> found;
    PlannedJob planned;
    MetShapes prepared;
    Prediction prediction;
    double planned_in = 0.0;  ///< processor seconds
    double predicted_in = 0.0;
    std::string costs_from;  ///< the file of measured costs; "" = costs are built in
    /// What the run with these costs observed: "240 microbatches"; "" = nothing.
    std::string observed;

    const Plan& plan() const { return planned.plan; }
    /// Predicted seconds of the whole job.
    double seconds(const std::vector<DatasetInfo>& infos) const;
};

/// Plans and predicts the job. Without --device the costs are those that runs on this host have
/// kept, if there are any. Throws InputError if the job does not fit.
PlannedPreview planned_preview(const CommandLine& command_line, const MpiSession& mpi, Job job,
                               const JobInputs& inputs, Cluster cluster);

/// What each worker is to train.
WorkerQueues queues_of(const PlannedPreview& preview, const std::vector<DatasetInfo>& infos);

}  // namespace loratrain
