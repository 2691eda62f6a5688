#include "plan/replica_order.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace loratrain {

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
