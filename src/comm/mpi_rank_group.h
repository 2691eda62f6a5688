#pragma once

#include <memory>

#include "backend/rank_group.h"
#include "comm/mpi_session.h"

namespace loratrain {

/// A RankGroup over MPI for host memory, fp32: every rank adds up its share of the elements, in
/// rank order, then the shares are gathered. Beside the values it uses 8 MiB of host memory.
///
/// Groups are ranks of the session that give the same `color` (not negative), ordered by rank.
/// Collective over the session; so is the end of the group over its ranks.
std::unique_ptr<RankGroup> make_mpi_rank_group(const MpiSession& mpi, int color);

}  // namespace loratrain
