#pragma once

#include "comm/mpi_session.h"
#include "plan/plan.h"

namespace loratrain {

/// What the ranks of this job have: counts, and the memory each may use (what the host has
/// available now, shared among its ranks; the smallest over all hosts). Collective.
Cluster describe_cluster(const MpiSession& mpi, BackendKind backend);

/// Lets freed blocks of a MiB or more go back to the system at once, so that the temporary ones of
/// loading and checkpointing do not stay resident beside what the plan counts.
void give_back_large_blocks();

/// Resident memory of this process in bytes, now and at its peak, without mapped files: the code of
/// the program and its libraries is shared by all ranks of a host.
struct ResidentMemory {
    std::uint64_t now = 0;
    std::uint64_t peak = 0;
};
ResidentMemory resident_memory();

}  // namespace loratrain
