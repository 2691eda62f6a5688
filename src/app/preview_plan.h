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

/// Of the start of a job, by which its speed is predicted.
inline constexpr std::int32_t rounds_predicted = 16;

/// A job as it is planned for a cluster, or for one of its workers, and what it is predicted to
/// take.
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
    std::string observed;    ///< of the run that they are of: "240 microbatches"; "" = nothing

    const Plan& plan() const { return planned.plan; }
    /// Of the whole job.
    double seconds(const std::vector<DatasetInfo>& infos) const;
};

/// Without --device by the costs that runs on this host have kept, where there are any. Throws
/// InputError where the job does not fit.
PlannedPreview planned_preview(const CommandLine& command_line, const MpiSession& mpi, Job job,
                               const JobInputs& inputs, Cluster cluster);

/// Of what each worker is to train.
WorkerQueues queues_of(const PlannedPreview& preview, const std::vector<DatasetInfo>& infos);

}  // namespace loratrain
