#include "plan/pack/dispatch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace loratrain {

namespace {

/// A group of samples of a round.
struct Group {
    std::size_t batch = 0;  ///< in the round
    std::size_t first = 0;  ///< of its samples
    std::int64_t tokens = 0;
};

std::int64_t tokens_in(std::span<const SampleRef> samples) {
    return std::accumulate(samples.begin(), samples.end(), std::int64_t{0},
                           [](std::int64_t sum, const SampleRef& s) { return sum + s.tokens; });
}

double slowest(const PackRules& replica, const MicrobatchLoad& load) {
    return slowest_seconds(replica.costs, replica.stages, load, replica.recompute);
}

class Dispatch {
  public:
    Dispatch(std::span<const PackRules> replicas, const Round& round, DispatchRule rule)
        : replicas_(replicas), round_(round), rule_(rule), owners_(round.size()) {
        for (const PackRules& replica : replicas) ends_.push_back(filling_seconds(replica));
        for (std::size_t b = 0; b < round.size(); ++b) add_groups(b);
    }

    std::vector<Round> run() {
        if (rule_ == DispatchRule::uniform) {
            deal_in_turn();
        } else {
            deal_longest_first();
        }
        return parts();
    }

  private:
    std::span<const SampleRef> samples_of(const Group& group) const {
        const PendingBatch& batch = round_[group.batch];
        return std::span(batch.samples)
            .subspan(group.first, static_cast<std::size_t>(batch.group_samples));
    }

    void add_groups(std::size_t b) {
        const PendingBatch& batch = round_[b];
        const auto size = static_cast<std::size_t>(batch.group_samples);
        owners_[b].resize(batch.samples.size());
        for (std::size_t first = 0; first < batch.samples.size(); first += size) {
            groups_.push_back({b, first, 0});
            groups_.back().tokens = tokens_in(samples_of(groups_.back()));
        }
    }

    /// What the rule asks of a replica for a group, and when it would end with it.
    using Claim = std::pair<double, double>;

    Claim claim(std::size_t r, const Group& group) const {
        const PackRules& replica = replicas_[r];
        const double seconds = dispatch_seconds(replica, samples_of(group));
        const double ranks = replica.tensor * static_cast<double>(replica.stages.size());
        return {rule_ == DispatchRule::length ? ranks * seconds : 0.0, ends_[r] + seconds};
    }

    /// The replica that ends first with it, of those that the rule lets take it.
    std::size_t take(const Group& group) {
        std::size_t best = replicas_.size();
        Claim least;
        for (std::size_t r = 0; r < replicas_.size(); ++r) {
            if (replicas_[r].capacity < group.tokens) continue;
            const Claim own = claim(r, group);
            if (best < replicas_.size() && own >= least) continue;
            best = r;
            least = own;
        }
        LORATRAIN_CHECK(best < replicas_.size(), "no replica takes ", group.tokens, " tokens");
        ends_[best] = least.second;
        return best;
    }

    void deal_in_turn() {
        std::size_t next = 0;
        for (const Group& group : groups_) {
            LORATRAIN_CHECK(replicas_[next].capacity >= group.tokens, "replica ", next,
                            " does not take ", group.tokens, " tokens");
            owners_[group.batch][group.first] = next;
            next = (next + 1) % replicas_.size();
        }
    }

    void deal_longest_first() {
        std::stable_sort(groups_.begin(), groups_.end(),
                         [](const Group& a, const Group& b) { return a.tokens > b.tokens; });
        for (const Group& group : groups_) owners_[group.batch][group.first] = take(group);
    }

    std::vector<Round> parts() const {
        std::vector<Round> parts(replicas_.size());
        for (std::size_t b = 0; b < round_.size(); ++b) {
            std::vector<PendingBatch> of_replica(
                replicas_.size(), {round_[b].adapter, round_[b].step, {}, round_[b].group_samples});
            const auto size = static_cast<std::size_t>(round_[b].group_samples);
            for (std::size_t i = 0; i < round_[b].samples.size(); ++i) {
                const std::size_t owner = owners_[b][i - i % size];
                of_replica[owner].samples.push_back(round_[b].samples[i]);
            }
            for (std::size_t r = 0; r < parts.size(); ++r) {
                if (!of_replica[r].samples.empty()) parts[r].push_back(std::move(of_replica[r]));
            }
        }
        return parts;
    }

    std::span<const PackRules> replicas_;
    const Round& round_;
    DispatchRule rule_;
    std::vector<Group> groups_;
    std::vector<double> ends_;                      ///< of the replicas
    std::vector<std::vector<std::size_t>> owners_;  ///< per batch and sample, where groups begin
};

}  // namespace

std::vector<Round> dispatch(std::span<const PackRules> replicas, const Round& round,
                            DispatchRule rule) {
    return Dispatch(replicas, round, rule).run();
}

double dispatch_seconds(const PackRules& replica, std::span<const SampleRef> samples) {
    MicrobatchLoad load;
    for (const SampleRef& sample : samples) {
        const auto tokens = static_cast<double>(sample.tokens);
        load += {sample.tokens, tokens * tokens, sample.targets};
    }
    const double fixed = slowest(replica, {});
    const double share = static_cast<double>(load.tokens) / static_cast<double>(replica.capacity);
    return slowest(replica, load) - fixed + share * fixed;
}

double filling_seconds(const PackRules& replica) {
    MicrobatchLoad full;
    full.tokens = full.targets = replica.capacity;
    return static_cast<double>(replica.stages.size() - 1) * slowest(replica, full);
}

}  // namespace loratrain
