#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "plan/plan.h"

namespace loratrain {

/// Sets the message costs of one host to those between ranks 0 and 1, by sending small and
/// boundary-sized messages to and fro; does nothing on other ranks, and where these are no
/// neighbours, are on two hosts or on GPUs, for which built-in costs do. Times of rank 0 count.
void profile_messages(const Plan& plan, const MpiSession& mpi, Communicator& communicator,
                      Backend& backend, CostModel& costs);

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
/// and fro, in host memory; the quickest of a few counts, as others may compute meanwhile. The same
/// result on all ranks. Collective.
std::vector<LinkBetweenHosts> profile_links(const MpiSession& mpi, std::span<const RankPair> pairs,
                                            std::size_t bytes, Communicator& communicator,
                                            Backend& backend);
/// Those of the plan, with messages of its boundaries, of 64 KiB to 4 MiB; none on one host, and
/// none on GPUs.
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
