#pragma once

#include <memory>

#include "backend/rank_group.h"
#include "comm/mpi_session.h"

namespace loratrain {

/// A RankGroup over NCCL for device memory: its calls are queued on `compute_stream` and return at
/// once. Sums are NCCL's, in the values' type, each made in one place and sent to all: equal bits
/// on all ranks, and the same again on the same GPUs, but the order of the ranks in them is NCCL's.
///
/// Groups are ranks of the session that give the same `color` (not negative), ordered by rank. The
/// constructor has every way of summing connect, for which NCCL blocks the host until all ranks of
/// the group have come: later it would, while they may wait elsewhere. Collective over the session;
/// throws InputError when the program was built without NCCL.
std::unique_ptr<RankGroup> make_nccl_rank_group(const MpiSession& mpi, int color,
                                                void* compute_stream);

}  // namespace loratrain
