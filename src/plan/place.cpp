#include "plan/place.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "plan/replica_order.h"

namespace loratrain {

std::vector<std::int32_t> hosts_of(const Cluster& cluster) {
    if (std::ssize(cluster.hosts) == cluster.ranks) return cluster.hosts;
    std::vector<std::int32_t> hosts;
    for (std::int32_t rank = 0; rank < cluster.ranks; ++rank) {
        hosts.push_back(rank / std::max(1, cluster.ranks_per_node));
    }
    return hosts;
}

void number_ranks(std::vector<ReplicaPlan>& replicas, std::span<const std::int32_t> hosts) {
    std::stable_sort(replicas.begin(), replicas.end(),
                     [](const auto& a, const auto& b) { return a.tensor > b.tensor; });
    std::vector<ReplicaCut> cuts;
    for (const ReplicaPlan& replica : replicas) {
        cuts.push_back({replica.tensor, static_cast<std::int32_t>(replica.stages.size())});
    }
    const std::vector<std::int32_t> first = first_ranks(cuts, hosts);
    for (std::size_t r = 0; r < replicas.size(); ++r) {
        std::int32_t rank = first[r];
        for (StagePlan& stage : replicas[r].stages) {
            stage.rank = rank;
            rank += replicas[r].tensor;
        }
    }
}

std::vector<std::int32_t> ranks_in_order(const Plan& plan) {
    std::vector<std::int32_t> ranks;
    for (const ReplicaPlan& replica : plan.replicas) {
        for (const StagePlan& stage : replica.stages) {
            for (std::int32_t lane = 0; lane < replica.tensor; ++lane) {
                ranks.push_back(stage.rank + lane);
            }
        }
    }
    return ranks;
}

RankPlace place_of(const Plan& plan, int rank) {
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        const ReplicaPlan& replica = plan.replicas[r];
        for (std::size_t s = 0; s < replica.stages.size(); ++s) {
            const std::int32_t lane = rank - replica.stages[s].rank;
            if (lane >= 0 && lane < replica.tensor) return {r, s, lane};
        }
    }
    throw Error(cat("rank ", rank, " has no place in the plan"));
}

std::vector<std::pair<int, int>> neighbours_in(const Plan& plan) {
    std::vector<std::pair<int, int>> pairs;
    for (const ReplicaPlan& replica : plan.replicas) {
        for (std::size_t s = 0; s + 1 < replica.stages.size(); ++s) {
            for (std::int32_t lane = 0; lane < replica.tensor; ++lane) {
                pairs.emplace_back(replica.stages[s].rank + lane,
                                   replica.stages[s + 1].rank + lane);
            }
        }
    }
    return pairs;
}

std::vector<std::string> stages_over_hosts(const Plan& plan, std::span<const std::string> hosts) {
    std::vector<std::string> texts;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        const ReplicaPlan& replica = plan.replicas[r];
        for (std::size_t s = 0; s < replica.stages.size(); ++s) {
            const std::int32_t first = replica.stages[s].rank;
            const auto of_lanes = hosts.subspan(static_cast<std::size_t>(first),
                                                static_cast<std::size_t>(replica.tensor));
            const std::set<std::string> different(of_lanes.begin(), of_lanes.end());
            if (different.size() == 1) continue;
            texts.push_back(cat("ranks ", first, "-", first + replica.tensor - 1, " (replica ", r,
                                ", stage ", s, ") are on hosts ",
                                join({different.begin(), different.end()}, " and "),
                                ": lanes sum in every layer, over the network there; start as many "
                                "ranks on each host as lanes can share evenly"));
        }
    }
    return texts;
}

}  // namespace loratrain
