#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "plan/plan.h"

namespace loratrain {

/// What the ranks of this job have: counts, the backend (automatic: CUDA when every rank sees a
/// GPU), and the memory each may use: what its GPU has free, less some for libraries and NCCL, or
/// what the host has available now shared among its ranks; the smallest over all ranks. Throws
/// InputError when CUDA is asked for and a rank sees no GPU, or two ranks would use the same one
/// (unless ranks_may_share_gpus: each has its share of the memory then), Error when a rank that may
/// use CUDA has a GPU that cannot be used now. Collective.
Cluster describe_cluster(const MpiSession& mpi, BackendKind backend);

/// A number of each rank's host, from 0, as Cluster::hosts.
std::vector<std::int32_t> host_numbers(const MpiSession& mpi);

/// Ranks that are only thought of.
struct ImaginedRanks {
    int count = 1;
    std::optional<int> per_host{};  ///< empty: all on one
};

/// As if these ranks had been started instead, on hosts like this one, whose memory CPU ranks
/// share.
Cluster with_ranks(Cluster cluster, const ImaginedRanks& ranks);

/// These ranks on devices that need not be there (plan/cost/device.h), empty of other programs;
/// "cpu": on this host's memory. Throws InputError where no device of this name is known.
Cluster imagined_cluster(const std::string& device, const ImaginedRanks& ranks,
                         const MpiSession& mpi);

/// "rank 0: node01, NVIDIA H200 0000:18:00.0" a line, or hosts alone without GPUs. Collective.
std::string describe_devices(const MpiSession& mpi, BackendKind backend);

}  // namespace loratrain
