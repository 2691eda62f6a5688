#pragma once

#include "comm/mpi_session.h"
#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// How the workers of a run are cut.
struct WorkerShape {
    ReplicaJob replica;  ///< of each, with their count
    Recompute recompute = Recompute::automatic;
};

/// The ranks of a run as workers: groups of equally many consecutive ranks, each of which trains
/// adapters of its own (parallel.assignment). Construction and destruction are collective over all.
class WorkerGroup {
  public:
    /// `world` outlives the group.
    WorkerGroup(const MpiSession& world, const WorkerShape& shape);

    const MpiSession& world() const { return world_; }
    /// Those of this rank's worker; rank 0 is its leader.
    const MpiSession& own() const { return own_; }
    /// The leaders of all workers, by number; other ranks have others of that kind.
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

/// Workers of the job on all ranks: as parallel.deployment or pipeline_stages cut them, of one rank
/// where neither says; with `assignment: auto` as simulation finds them fastest
/// (plan/sweep/deploy_sweep.h), with built-in costs. Whether they recompute is simulated for
/// either: what a plan of all adapters at once would do to hold them is slower. InputError where
/// ranks are left over, or nothing fits. Collective.
WorkerShape shape_of_workers(const MpiSession& world, const Job& job);

/// The same for ranks that need not be there; on one rank.
WorkerShape shape_of_workers(const Job& job, const Cluster& cluster);

/// The job as one worker trains it: one replica of this shape. The first one alone is traced.
Job job_of_worker(Job job, const WorkerShape& shape, int worker = 0);

}  // namespace loratrain
