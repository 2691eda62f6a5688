#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "plan/plan.h"

namespace loratrain {

/// What messages take inside a host, between the first two neighbours that are on one, by sending
/// small and boundary-sized ones to and fro; none where the first replica has no pipeline or any
/// has lanes, where no neighbours are on one host, and on GPUs, for which built-in costs do. The
/// same on all ranks. Collective.
std::optional<LinkCost> profile_messages(const Plan& plan, const MpiSession& mpi,
                                         Communicator& communicator, Backend& backend);

/// A way between two hosts, measured between two of their ranks.
struct LinkBetweenHosts {
    std::string from;
    std::string to;
    LinkCost cost;
};

/// Ranks between which messages tell what the ways between hosts are like that the plan uses: of
/// each two hosts the first pair of neighbours on them (neighbours_in); where several replicas sum
/// gradients, also the first ranks of two hosts that follow each other, unless they have a pair.
/// None on one host. `hosts`: of the ranks.
std::vector<RankPair> pairs_between_hosts(const Plan& plan, std::span<const std::string> hosts);

/// Measures the links of these pairs one after the other, by messages of 64 bytes and of `bytes` to
/// and fro, in the backend's memory; the quickest of a few counts, as others may compute meanwhile.
/// The same result on all ranks. `communicator`: one that joins them. Collective.
std::vector<LinkBetweenHosts> profile_links(const MpiSession& mpi, std::span<const RankPair> pairs,
                                            std::size_t bytes, Communicator& communicator,
                                            Backend& backend);
/// Those of the plan, with messages of its boundaries, of 64 KiB to 4 MiB; none on one host.
/// Neighbours send through `communicator`, as they do in training; pairs that sum gradients through
/// one that is made for that and then gone: over NCCL between GPUs, as their sums go.
std::vector<LinkBetweenHosts> profile_links(const MpiSession& mpi, const Plan& plan,
                                            Communicator& communicator, Backend& backend);

/// The median of latency and of what a byte takes. At least one link.
LinkCost usual_cost(std::span<const LinkBetweenHosts> links);

/// "node1 - node2 1.18 GB/s, 24 us; ..."; of more than eight links the slowest eight.
std::string links_text(std::span<const LinkBetweenHosts> links);

/// A text for each link that takes more than three times as long for a message of 1 MiB as the
/// others in the median: its hosts, what it carries and what the others do.
std::vector<std::string> slow_links(std::span<const LinkBetweenHosts> links);

}  // namespace loratrain
