#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/rank_group.h"
#include "comm/mpi_session.h"
#include "plan/plan.h"

namespace loratrain {

/// The groups in which a rank sums with the other lanes of its stage, as a plan deploys it.
class LaneGroups {
  public:
    /// Collective over the session, which has the plan's ranks; so is the end. Without tensor
    /// parallelism there is nothing to do. Sums are of the backend's memory; it outlives the
    /// groups.
    LaneGroups(const MpiSession& mpi, const Plan& plan, const Backend& backend);

    StageLanes of_rank() const;

  private:
    std::unique_ptr<RankGroup> all_;  ///< null: one lane
    std::unique_ptr<RankGroup> key_value_sharers_;
};

}  // namespace loratrain
