#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/rank_group.h"
#include "comm/mpi_session.h"

namespace loratrain {

/// Makers of RankGroups, groups of ranks that sum (backend/rank_group.h). A group has the ranks of
/// the session that give the same `color` (>= 0), in rank order. Collective over the session; the
/// end of a group is collective over its ranks.

/// make_nccl_rank_group() if the backend has a stream, else make_mpi_rank_group().
std::unique_ptr<RankGroup> make_rank_group(const MpiSession& mpi, int color,
                                           const Backend& backend);

/// Over MPI, for host memory and fp32. Every rank sums its share of the elements in rank order;
/// then the ranks gather the shares. Takes 8 MiB of host memory beside the values.
std::unique_ptr<RankGroup> make_mpi_rank_group(const MpiSession& mpi, int color);

/// Over NCCL, for device memory. Calls are queued on `compute_stream` and return at once. Sums are
/// NCCL's, in the values' type: each is made in one place and sent to all ranks, so bits are equal
/// on all ranks, and reproducible on the same GPUs. The order of the ranks in a sum is NCCL's.
///
/// The maker connects every algorithm at once, for which NCCL blocks the host until all ranks of
/// the group have come; later, ranks might wait for each other elsewhere. Throws InputError in a
/// program built without NCCL.
std::unique_ptr<RankGroup> make_nccl_rank_group(const MpiSession& mpi, int color,
                                                void* compute_stream);

}  // namespace loratrain
