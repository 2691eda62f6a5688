#include "plan/place.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/text.h"

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
                                ": these tensor-parallel ranks exchange sums in every layer, here "
                                "over the network; start ranks on each host in multiples of tp"));
        }
    }
    return texts;
}

namespace {

constexpr std::size_t most_states = std::size_t{1} << 20U;

/// What is on several hosts, the worst first.
struct Apart {
    std::int32_t stages = 0;
    std::int32_t replicas = 0;
    std::int32_t neighbours = 0;
    friend auto operator<=>(const Apart&, const Apart&) = default;
    friend Apart operator+(const Apart& a, const Apart& b) {
        return {a.stages + b.stages, a.replicas + b.replicas, a.neighbours + b.neighbours};
    }
};

/// Counts between which consecutive ranks hosts change.
class HostChanges {
  public:
    explicit HostChanges(std::span<const std::int32_t> hosts) : before_(hosts.size(), 0) {
        for (std::size_t rank = 1; rank < hosts.size(); ++rank) {
            before_[rank] = before_[rank - 1] + (hosts[rank] == hosts[rank - 1] ? 0 : 1);
        }
    }

    std::int32_t in(std::int32_t first, std::int32_t ranks) const {
        return before_[static_cast<std::size_t>(first + ranks - 1)] -
               before_[static_cast<std::size_t>(first)];
    }

    Apart of(const ReplicaCut& cut, std::int32_t first) const {
        Apart apart;
        for (std::int32_t stage = 0; stage < cut.stages; ++stage) {
            apart.stages += in(first + stage * cut.tensor, cut.tensor) > 0 ? 1 : 0;
        }
        apart.neighbours = in(first, cut.ranks());
        apart.replicas = apart.neighbours > 0 ? 1 : 0;
        return apart;
    }

  private:
    std::vector<std::int32_t> before_;
};

/// Replicas that are cut alike take each other's places.
struct Kind {
    ReplicaCut cut;
    std::vector<std::size_t> replicas;
    std::size_t stride = 1;  ///< of a state's number, which counts how many of each kind stand
};

std::vector<Kind> kinds_of(std::span<const ReplicaCut> replicas) {
    std::vector<Kind> kinds;
    for (std::size_t r = 0; r < replicas.size(); ++r) {
        auto kind = std::find_if(kinds.begin(), kinds.end(),
                                 [&](const Kind& of) { return of.cut == replicas[r]; });
        if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {replicas[r], {}});
        kind->replicas.push_back(r);
    }
    return kinds;
}

/// How many states there are; more than most_states: at least so many.
std::size_t set_strides(std::vector<Kind>& kinds) {
    std::size_t states = 1;
    for (Kind& kind : kinds) {
        kind.stride = states;
        states *= kind.replicas.size() + 1;
        if (states > most_states) break;
    }
    return states;
}

class OrderSearch {
  public:
    OrderSearch(std::vector<Kind> kinds, std::size_t states, const HostChanges& changes)
        : kinds_(std::move(kinds)), changes_(changes), least_(states) {
        for (std::size_t state = states - 1; state-- > 0;) {
            bool first = true;
            for (const Kind& kind : kinds_) {
                if (standing(kind, state) == kind.replicas.size()) continue;
                const Apart apart = with(kind, state);
                if (first || apart < least_[state]) least_[state] = apart;
                first = false;
            }
        }
    }

    std::vector<std::int32_t> ranks(std::size_t replicas) const {
        std::vector<std::int32_t> first(replicas, 0);
        std::size_t state = 0;
        for (std::size_t r = 0; r < replicas; ++r) {
            const Kind& kind = next(state);
            first[kind.replicas[standing(kind, state)]] = ranks_standing(state);
            state += kind.stride;
        }
        return first;
    }

  private:
    static std::size_t standing(const Kind& kind, std::size_t state) {
        return state / kind.stride % (kind.replicas.size() + 1);
    }
    std::int32_t ranks_standing(std::size_t state) const {
        return std::accumulate(kinds_.begin(), kinds_.end(), 0, [&](auto sum, const Kind& kind) {
            return sum + static_cast<std::int32_t>(standing(kind, state)) * kind.cut.ranks();
        });
    }
    /// From this state on, if one of the kind is next.
    Apart with(const Kind& kind, std::size_t state) const {
        return changes_.of(kind.cut, ranks_standing(state)) + least_[state + kind.stride];
    }
    /// The one whose next replica comes first.
    const Kind& next(std::size_t state) const {
        const Kind* chosen = nullptr;
        std::size_t earliest = 0;
        for (const Kind& kind : kinds_) {
            const std::size_t own = standing(kind, state);
            if (own == kind.replicas.size() || with(kind, state) != least_[state]) continue;
            if (chosen != nullptr && kind.replicas[own] > earliest) continue;
            chosen = &kind;
            earliest = kind.replicas[own];
        }
        return *chosen;
    }

    std::vector<Kind> kinds_;
    const HostChanges& changes_;
    std::vector<Apart> least_;  ///< per state, of those that do not stand yet
};

}  // namespace

std::vector<std::int32_t> first_ranks(std::span<const ReplicaCut> replicas,
                                      std::span<const std::int32_t> hosts) {
    std::vector<std::int32_t> first;
    std::int32_t ranks = 0;
    for (const ReplicaCut& cut : replicas) {
        first.push_back(ranks);
        ranks += cut.ranks();
    }
    const bool known = std::ssize(hosts) >= ranks && ranks > 0;
    if (!known) return first;
    const HostChanges changes(hosts);
    if (changes.in(0, ranks) == 0) return first;
    std::vector<Kind> kinds = kinds_of(replicas);
    const std::size_t states = set_strides(kinds);
    if (kinds.size() == 1 || states > most_states) return first;
    return OrderSearch(std::move(kinds), states, changes).ranks(replicas.size());
}

}  // namespace loratrain
