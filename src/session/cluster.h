#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi_session.h"
#include "plan/plan.h"

namespace loratrain {

/// The machine that a job runs on, or is planned for.

/// Describes the machine of this job's ranks: numbers of ranks, backend (automatic: CUDA if every
/// rank sees a GPU), and memory per rank, the smallest over all ranks. GPU: its free memory, less
/// some for libraries and NCCL. CPU: the host's available memory, shared among its ranks.
/// InputError if CUDA is asked for and a rank sees no GPU, or if two ranks would use the same GPU
/// (unless ranks_may_share_gpus: each has a share of its memory). Error if a GPU cannot be used
/// now. Collective.
Cluster describe_cluster(const MpiSession& mpi, BackendKind backend);

/// Number of each rank's host, from 0 (Cluster::hosts).
std::vector<std::int32_t> host_numbers(const MpiSession& mpi);

/// Ranks to plan for, which need not be there.
struct ImaginedRanks {
    int count = 1;
    std::optional<int> per_host{};  ///< empty: all on one
};

/// The cluster as if these ranks had been started on hosts like this one. CPU ranks share a host's
/// memory.
Cluster with_ranks(Cluster cluster, const ImaginedRanks& ranks);

/// These ranks on devices that need not be there (plan/cost/device.h) and that no other program
/// uses; "cpu": with this host's memory. InputError for an unknown device.
Cluster imagined_cluster(const std::string& device, const ImaginedRanks& ranks,
                         const MpiSession& mpi);

/// A line per rank, "rank 0: node01, NVIDIA H200 0000:18:00.0", or the hosts without GPUs.
/// Collective.
std::string describe_devices(const MpiSession& mpi, BackendKind backend);

}  // namespace loratrain
