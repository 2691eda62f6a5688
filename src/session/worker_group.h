#pragma once

#include "comm/mpi_session.h"
#include "config/job.h"
#include "plan/deployments/worker_shape.h"

namespace loratrain {

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

/// Shape of the job's workers on all ranks (plan/deployments/worker_shape.h). Collective.
WorkerShape shape_of_workers(const MpiSession& world, const Job& job);

}  // namespace loratrain
