#pragma once

#include "comm/mpi_session.h"
#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// Shape of a run's workers; all are alike.
struct WorkerShape {
    ReplicaJob replica;  ///< of each worker, with their number
    Recompute recompute = Recompute::automatic;
};

/// The ranks of a run as workers: groups of equally many consecutive ranks. Each group trains
/// adapters of its own (parallel.assignment). Construction and destruction are collective over all
/// ranks.
class WorkerGroup {
  public:
    /// `world` outlives the group.
    WorkerGroup(const MpiSession& world, const WorkerShape& shape);

    const MpiSession& world() const { return world_; }
    /// The ranks of this rank's worker; its rank 0 leads it.
    const MpiSession& own() const { return own_; }
    /// Rank 0 of each worker, by number; on other ranks those of equal number in their worker.
    const MpiSession& leaders() const { return leaders_; }
    const WorkerShape& shape() const { return shape_; }
    int worker() const { return world_.rank() / own_.size(); }  ///< this rank's
    int count() const { return shape_.replica.count; }

  private:
    const MpiSession& world_;
    WorkerShape shape_;
    MpiSession own_;
    MpiSession leaders_;
};

/// Shape of the job's workers on all ranks: by parallel.deployment or pipeline_stages, else one
/// rank each; with `assignment: auto` the fastest by simulation (plan/sweep/deploy_sweep.h) with
/// built-in costs, with and without recomputation. (A plan that holds all adapters at once would
/// recompute, and be slower.) InputError if ranks are left over or nothing fits. Collective.
WorkerShape shape_of_workers(const MpiSession& world, const Job& job);

/// The same on one rank, for a cluster that need not be there.
WorkerShape shape_of_workers(const Job& job, const Cluster& cluster);

/// The job of one worker: one replica of this shape. Only worker 0 writes a trace.
Job job_of_worker(Job job, const WorkerShape& shape, int worker = 0);

}  // namespace loratrain
