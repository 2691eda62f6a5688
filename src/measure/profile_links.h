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

/// Measures messages between ranks, inside a host and between hosts.

/// The cost of a message inside a host: the first two neighbours on one host send small and
/// boundary-sized messages to and fro. None if the first replica has no pipeline, any replica has
/// lanes, no neighbours share a host, or on GPUs (built-in costs are good enough there).
/// Collective; all ranks have the result.
std::optional<LinkCost> profile_messages(const Plan& plan, const MpiSession& mpi,
                                         Communicator& communicator, Backend& backend);

/// The link between two hosts, measured between two of their ranks.
struct LinkBetweenHosts {
    std::string from;
    std::string to;
    LinkCost cost;
};

/// The pairs of ranks whose messages measure the links between hosts that the plan uses. For every
/// two hosts it is the first pair of neighbours on them (neighbours_in). If several replicas sum
/// gradients, the first ranks of consecutive hosts are a pair too, unless these hosts have one.
/// Empty on one host. `hosts`: the host of each rank.
std::vector<RankPair> pairs_between_hosts(const Plan& plan, std::span<const std::string> hosts);

/// Measures the links of these pairs one after the other: messages of 64 bytes and of `bytes` to
/// and fro, in the backend's memory. The quickest of a few counts, as other programs may use the
/// network meanwhile. `communicator` joins the pairs. Collective; all ranks have the result.
std::vector<LinkBetweenHosts> profile_links(const MpiSession& mpi, std::span<const RankPair> pairs,
                                            std::size_t bytes, Communicator& communicator,
                                            Backend& backend);
/// Measures the links that the plan uses (pairs_between_hosts), with messages as large as its
/// boundaries, 64 KiB to 4 MiB. Empty on one host. Neighbours send through `communicator`, as in
/// training. Pairs that sum gradients send through a temporary one: over NCCL between GPUs.
std::vector<LinkBetweenHosts> profile_links(const MpiSession& mpi, const Plan& plan,
                                            Communicator& communicator, Backend& backend);

/// Median latency and median time per byte of at least one link.
LinkCost usual_cost(std::span<const LinkBetweenHosts> links);

/// "node1 - node2 1.18 GB/s, 24 us; ...": at most eight links, the slowest.
std::string links_text(std::span<const LinkBetweenHosts> links);

/// A warning for each slow link, with its hosts and rates: for a message of 1 MiB it takes more
/// than three times as long as the median of the other links.
std::vector<std::string> slow_links(std::span<const LinkBetweenHosts> links);

}  // namespace loratrain
