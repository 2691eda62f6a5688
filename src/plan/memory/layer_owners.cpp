#include "plan/memory/layer_owners.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "plan/memory/residency.h"
#include "plan/place.h"
#include "plan/replica_order.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

std::int32_t rank_count(const ReplicaPlan& replica) {
    return replica.tensor * static_cast<std::int32_t>(replica.stages.size());
}

/// -1 where the ranks are on several.
std::int32_t common_host(std::int32_t first_rank, std::int32_t ranks,
                         std::span<const std::int32_t> hosts) {
    const auto own =
        hosts.subspan(static_cast<std::size_t>(first_rank), static_cast<std::size_t>(ranks));
    return std::count(own.begin(), own.end(), own.front()) == ranks ? own.front() : -1;
}

}  // namespace

std::int32_t sharers(const std::vector<ReplicaJob>& deployment, const Cluster& cluster) {
    std::vector<const ReplicaJob*> replicas;
    for (const ReplicaJob& entry : deployment) {
        replicas.insert(replicas.end(), static_cast<std::size_t>(entry.count), &entry);
    }
    std::stable_sort(replicas.begin(), replicas.end(),
                     [](const auto* a, const auto* b) { return a->tensor > b->tensor; });
    std::map<std::pair<const ReplicaJob*, std::int32_t>, std::int32_t> groups;
    std::vector<ReplicaCut> cuts;
    std::int32_t ranks = 0;
    for (const ReplicaJob* replica : replicas) {
        cuts.push_back({replica->tensor, replica->stages});
        ranks += cuts.back().ranks();
    }
    const std::vector<std::int32_t> hosts = hosts_of(cluster);
    if (ranks > std::ssize(hosts)) return 1;
    const std::vector<std::int32_t> first = first_ranks(cuts, hosts);
    std::int32_t least = std::numeric_limits<std::int32_t>::max();
    for (std::size_t r = 0; r < replicas.size(); ++r) {
        const std::int32_t host = common_host(first[r], cuts[r].ranks(), hosts);
        if (host < 0) return 1;
        ++groups[{replicas[r], host}];
    }
    for (const auto& [group, count] : groups) least = std::min(least, count);
    return groups.empty() ? 1 : least;
}

void set_layer_owners(std::vector<ReplicaPlan>& replicas, std::span<const std::int32_t> hosts) {
    using Joined = std::array<bool, linear_group_count>;
    using Key =
        std::tuple<std::int32_t, std::int32_t, std::int32_t, Joined, std::int32_t, std::int32_t>;
    std::map<Key, std::vector<StagePlan*>> groups;
    for (ReplicaPlan& replica : replicas) {
        const std::int32_t first = replica.stages.front().rank;
        const std::int32_t host = common_host(first, rank_count(replica), hosts);
        for (StagePlan& stage : replica.stages) {
            stage.owners.clear();
            stage.resident_layers = all_layers;
            if (host < 0) continue;
            groups[{host, replica.tensor, replica.pad_columns, replica.joined, stage.first_layer,
                    stage.layer_count}]
                .push_back(&stage);
        }
    }
    for (auto& [key, stages] : groups) {
        if (stages.size() == 1) continue;
        std::vector<std::int32_t> ranks;
        for (const StagePlan* stage : stages) ranks.push_back(stage->rank);
        for (StagePlan* stage : stages) {
            stage->owners = ranks;
            stage->resident_layers = owned_layers(*stage);
        }
    }
}

bool has_layer_owners(const Plan& plan) {
    return std::any_of(plan.replicas.begin(), plan.replicas.end(), [](const auto& replica) {
        return std::any_of(replica.stages.begin(), replica.stages.end(),
                           [](const StagePlan& stage) { return !stage.owners.empty(); });
    });
}

StreamedCopies::StreamedCopies(const Plan& plan, std::span<const std::int32_t> host_of)
    : of_rank_(host_of.size()), counts_(host_of.size()) {
    /// Host, lanes, lane, layer of the model.
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>,
             std::vector<std::pair<std::int32_t, std::int32_t>>>
        users;
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(host_of.size()); ++rank) {
        const RankPlace place = place_of(plan, rank);
        const ReplicaPlan& replica = plan.replicas[place.replica];
        const StagePlan& stage = replica.stages[place.stage];
        for (std::int32_t l = 0; l < stage.layer_count; ++l) {
            if (!is_streamed(stage, l)) continue;
            users[{host_of[static_cast<std::size_t>(rank)], replica.tensor, place.lane,
                   stage.first_layer + l}]
                .emplace_back(rank, l);
        }
    }
    for (const auto& [key, ranks] : users) {
        const auto turn = static_cast<std::size_t>(std::get<3>(key)) % ranks.size();
        const std::int32_t owner = ranks[turn].first;
        const Copy copy{owner, counts_[static_cast<std::size_t>(owner)]++};
        for (const auto& [rank, layer] : ranks) {
            of_rank_[static_cast<std::size_t>(rank)].push_back({layer, copy});
        }
    }
}

StreamedCopies::Copy StreamedCopies::of(std::int32_t rank, std::int32_t layer) const {
    const auto& entries = of_rank_[static_cast<std::size_t>(rank)];
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& entry) { return entry.layer == layer; });
    LORATRAIN_CHECK(found != entries.end(), "layer ", layer, " of rank ", rank, " does not stream");
    return found->copy;
}

std::int32_t StreamedCopies::copies_on(std::int32_t rank) const {
    return counts_[static_cast<std::size_t>(rank)];
}

std::vector<std::int32_t> StreamedCopies::owners(std::int32_t rank) const {
    std::set<std::int32_t> owners;
    for (const Entry& entry : of_rank_[static_cast<std::size_t>(rank)]) {
        owners.insert(entry.copy.owner);
    }
    return {owners.begin(), owners.end()};
}

void set_host_copies(Plan& plan, std::span<const std::int32_t> hosts) {
    for (MemoryPlan& memory : plan.memory) memory.host = 0;
    if (std::none_of(plan.replicas.begin(), plan.replicas.end(), may_stream)) return;
    const auto ranks = static_cast<std::int32_t>(plan.memory.size());
    const StreamedCopies copies(plan, hosts.first(plan.memory.size()));
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
        const RankPlace place = place_of(plan, rank);
        const ReplicaView view = view_of(plan, plan.replicas[place.replica]);
        MemoryPlan& memory = plan.memory[static_cast<std::size_t>(rank)];
        const StagePlan& stage = view.replica.stages[place.stage];
        if (streamed_layers(stage) == 0 || !stage.owners.empty()) continue;
        memory.host = static_cast<std::uint64_t>(copies.copies_on(rank)) *
                      host_layer_bytes(streamed_layer(view));
    }
}

}  // namespace loratrain
