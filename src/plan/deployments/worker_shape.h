#pragma once

#include <limits>
#include <optional>
#include <span>

#include "plan/deploy/make_plan.h"
#include "plan/sweep/worker_queues.h"

namespace loratrain {

/// Shape of a run's workers; all are alike.
struct WorkerShape {
    ReplicaJob replica;  ///< of each worker, with their number
    Recompute recompute = Recompute::automatic;
};

/// The job of one worker: one replica of this shape. Only worker 0 writes a trace.
Job job_of_worker(Job job, const WorkerShape& shape, int worker = 0);

/// Seconds until the last worker has trained its queue, by the simulation that predicts pipelines
/// and replicas (predict.h): without evaluations, checkpoints, and what workers take from each
/// other at the end. Queues of alike adapters are simulated once, and of many different ones those
/// that take the longest by their own estimate. Packed jobs: their estimate. `job`, `plan`: a
/// worker's, with all adapters. `met`: as queue_for_workers(). Of workers that take longer than
/// `most` seconds no more is found than that.
double workers_seconds(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                       const WorkerQueues& queues, const MetShapes& met = {},
                       double most = std::numeric_limits<double>::infinity());

/// Workers of a shape, and what they take of a whole job.
struct WorkersPrediction {
    WorkerShape shape;
    double seconds = 0.0;
};

/// The workers on all ranks of the cluster that end the job first by workers_seconds() with
/// built-in costs. Looked at are the shapes within 15% of the fastest by estimate (deploy_sweep.h),
/// at most two, each in the microbatches and with the recomputation of that estimate and, unless
/// that is hopeless, in those that make_plan.h finds for the longest queue alone. `beside`: seconds
/// of the fastest other way; then two workers or more, and only where a rank holds the base.
/// InputError where no trial fits.
std::optional<WorkersPrediction> fastest_workers(const Job& job, const ModelSpec& model,
                                                 std::span<const DatasetInfo> datasets,
                                                 const Cluster& cluster,
                                                 std::optional<double> beside = {});

/// Shape of the job's workers on all ranks: by parallel.deployment or pipeline_stages, else one
/// rank each, recomputing as they say or as is fastest by estimate; with `assignment: auto`
/// fastest_workers(). (A plan that holds all adapters at once would recompute, and be slower.)
/// InputError if ranks are left over or nothing fits.
WorkerShape shape_of_workers(const Job& job, const ModelSpec& model,
                             std::span<const DatasetInfo> datasets, const Cluster& cluster);

}  // namespace loratrain
