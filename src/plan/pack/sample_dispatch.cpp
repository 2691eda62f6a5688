#include "plan/pack/sample_dispatch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "plan/pack/length_buckets.h"

namespace loratrain {

namespace {

/// A group of samples of a round.
struct Group {
    std::size_t batch = 0;  ///< in the round
    std::size_t first = 0;  ///< of its samples
    std::int64_t tokens = 0;
};

/// Groups of about the same length, from `first` up to `end`.
struct Bucket {
    std::size_t first = 0;
    std::size_t end = 0;
    std::size_t size() const { return end - first; }
};

/// Groups of a bucket that each kind of replicas is still to get.
using Quota = std::vector<long>;

constexpr std::int64_t dispatch_nodes = 50;
constexpr double about_as_early = 0.1;        // of what a group takes
constexpr double worth_dealing_anew = 0.998;  // of the greedy end
constexpr double short_share = 0.3;           // of all tokens

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
        : replicas_(replicas),
          round_(round),
          rule_(rule),
          claims_(replicas.size()),
          dealt_(round.size(), std::vector<int>(replicas.size(), 0)),
          owners_(round.size()) {
        for (const PackRules& replica : replicas) ends_.push_back(filling_seconds(replica));
        for (std::size_t b = 0; b < round.size(); ++b) add_groups(b);
    }

    std::vector<Round> run() {
        if (rule_ == DispatchRule::uniform) {
            deal_in_turn();
            return parts();
        }
        deal_longest_first();
        if (rule_ == DispatchRule::balanced) improve();
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

    /// To the replica that ends first with it, of those that the rule and the quota, if there is
    /// one, let take it; of those that end about as early to the one with the fewest samples of the
    /// batch: what a part of the adapters computes is to be shared evenly too (pack_shares.h).
    void deal(const Group& group, Quota* quota = nullptr) {
        constexpr Claim none{std::numeric_limits<double>::infinity(), 0.0};
        Claim least = none;
        for (std::size_t r = 0; r < replicas_.size(); ++r) {
            const bool takes = replicas_[r].capacity >= group.tokens &&
                               (quota == nullptr || (*quota)[kind_of_[r]] > 0);
            claims_[r] = takes ? claim(r, group) : none;
            least = std::min(least, claims_[r]);
        }
        LORATRAIN_CHECK(least != none, "no replica takes ", group.tokens, " tokens");
        std::size_t best = replicas_.size();
        for (std::size_t r = 0; r < replicas_.size(); ++r) {
            const double spare = about_as_early * (claims_[r].second - ends_[r]);
            if (claims_[r].first != least.first || claims_[r].second > least.second + spare) {
                continue;
            }
            if (best == replicas_.size() || standing(r, group) < standing(best, group)) best = r;
        }
        ends_[best] = claims_[best].second;
        ++dealt_[group.batch][best];
        owners_[group.batch][group.first] = best;
        if (quota != nullptr) --(*quota)[kind_of_[best]];
    }

    std::pair<int, double> standing(std::size_t r, const Group& group) const {
        return {dealt_[group.batch][r], claims_[r].second};
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
        for (const Group& group : groups_) deal(group);
    }

    double last_end() const { return *std::max_element(ends_.begin(), ends_.end()); }

    /// By kinds of replicas and length buckets, where that ends earlier than what is dealt.
    void improve() {
        find_kinds();
        if (groups_.empty() || kinds_.size() < 2 || !milp_available()) return;
        const double end = last_end();
        const std::size_t first_short = first_of_short();
        const std::vector<Bucket> buckets = length_buckets_of_groups();
        const auto first_whole = static_cast<std::size_t>(
            std::count_if(buckets.begin(), buckets.end(),
                          [&](const Bucket& bucket) { return bucket.first >= first_short; }));
        MilpLimits limits;
        limits.nodes = dispatch_nodes;
        limits.cutoff = worth_dealing_anew;
        const auto solution =
            solve_milp(dispatch_milp(milp_task(buckets), end, first_whole), limits);
        if (!solution) return;
        const auto former_owners = owners_;
        deal_by(quotas_of(buckets, solution->values), buckets, first_short);
        if (last_end() >= end) owners_ = former_owners;
    }

    /// Replicas of a kind take as much and as long.
    void find_kinds() {
        for (const PackRules& rules : replicas_) {
            const auto known = std::find_if(kinds_.begin(), kinds_.end(), [&](std::size_t first) {
                const PackRules& kind = replicas_[first];
                return kind.capacity == rules.capacity && kind.tensor == rules.tensor &&
                       kind.stages.size() == rules.stages.size() &&
                       kind.recompute == rules.recompute;
            });
            kind_of_.push_back(static_cast<std::size_t>(known - kinds_.begin()));
            if (known == kinds_.end()) kinds_.push_back(kind_of_.size() - 1);
        }
    }

    /// From here on groups_, which are sorted by falling length, take a small share of the time.
    std::size_t first_of_short() const {
        double all = 0.0;
        for (const Group& group : groups_) all += static_cast<double>(group.tokens);
        double shorter = 0.0;
        std::size_t first = groups_.size();
        while (first > 0 && shorter < short_share * all) {
            shorter += static_cast<double>(groups_[--first].tokens);
        }
        return first;
    }

    /// Of groups_, the shortest first. The same replicas can take all groups of a bucket.
    std::vector<Bucket> length_buckets_of_groups() const {
        std::vector<std::int32_t> lengths;
        for (const Group& group : groups_) {
            lengths.push_back(static_cast<std::int32_t>(group.tokens));
        }
        const std::vector<std::int32_t> usual = length_buckets(lengths, default_buckets);
        std::set<std::int64_t> bounds(usual.begin(), usual.end());
        for (const PackRules& replica : replicas_) bounds.insert(replica.capacity);
        std::vector<Bucket> buckets;
        std::int64_t bound = 0;
        for (std::size_t g = groups_.size(); g-- > 0;) {
            if (groups_[g].tokens > bound) {
                bound = *bounds.lower_bound(groups_[g].tokens);
                buckets.push_back({g + 1, g + 1});
            }
            buckets.back().first = g;
        }
        return buckets;
    }

    bool holds(std::size_t kind, const Bucket& bucket) const {
        return groups_[bucket.first].tokens <= replicas_[kinds_[kind]].capacity;
    }

    DispatchTask milp_task(const std::vector<Bucket>& buckets) const {
        DispatchTask task;
        for (const Bucket& bucket : buckets) {
            task.samples.push_back(static_cast<double>(bucket.size()));
        }
        for (std::size_t k = 0; k < kinds_.size(); ++k) {
            const PackRules& rules = replicas_[kinds_[k]];
            ReplicaKind& kind = task.kinds.emplace_back();
            kind.replicas =
                static_cast<std::int32_t>(std::count(kind_of_.begin(), kind_of_.end(), k));
            kind.filling = filling_seconds(rules);
            for (const Bucket& bucket : buckets) {
                if (!holds(k, bucket)) break;
                double seconds = 0.0;
                for (std::size_t g = bucket.first; g < bucket.end; ++g) {
                    seconds += dispatch_seconds(rules, samples_of(groups_[g]));
                }
                kind.seconds.push_back(seconds / static_cast<double>(bucket.size()));
            }
        }
        return task;
    }

    /// Per bucket, from the values of the MILP's columns.
    std::vector<Quota> quotas_of(const std::vector<Bucket>& buckets,
                                 const std::vector<double>& values) const {
        std::vector<Quota> quotas(buckets.size(), Quota(kinds_.size(), 0));
        std::size_t column = 1;
        for (std::size_t k = 0; k < kinds_.size(); ++k) {
            for (std::size_t j = 0; j < buckets.size() && holds(k, buckets[j]); ++j) {
                quotas[j][k] = std::lround(values[column++]);
            }
        }
        return quotas;
    }

    /// Buckets are not as narrow as replicas are to end close to each other: short groups go where
    /// they end first, whatever their quotas.
    void deal_by(std::vector<Quota> quotas, const std::vector<Bucket>& buckets,
                 std::size_t first_short) {
        for (std::size_t r = 0; r < replicas_.size(); ++r) ends_[r] = filling_seconds(replicas_[r]);
        for (std::vector<int>& of_batch : dealt_) std::fill(of_batch.begin(), of_batch.end(), 0);
        for (std::size_t j = buckets.size(); j-- > 0;) {
            for (std::size_t g = buckets[j].first; g < buckets[j].end; ++g) {
                deal(groups_[g], g < first_short ? &quotas[j] : nullptr);
            }
        }
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
    std::vector<Claim> claims_;                     ///< of the replicas for a group
    std::vector<std::vector<int>> dealt_;           ///< groups, per batch and replica
    std::vector<std::size_t> kinds_;                ///< their first replicas
    std::vector<std::size_t> kind_of_;              ///< per replica
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
        load += {sample.tokens, replica.span.squares(sample.tokens), sample.targets};
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

namespace {

constexpr double unbounded = std::numeric_limits<double>::infinity();

}  // namespace

Milp dispatch_milp(const DispatchTask& task, double unit, std::size_t first_whole) {
    Milp problem;
    problem.columns.push_back({0.0, unbounded, 1.0, false});
    std::vector<Milp::Row> all_of;
    for (const double samples : task.samples) all_of.push_back({samples, samples, {}});
    std::vector<Milp::Row> within;
    for (const ReplicaKind& kind : task.kinds) {
        if (kind.replicas == 0) continue;
        within.push_back({-unbounded, -kind.filling / unit, {{0, -1.0}}});
        for (std::size_t j = 0; j < kind.seconds.size(); ++j) {
            const int column = static_cast<int>(problem.columns.size());
            problem.columns.push_back({0.0, task.samples[j], 0.0, j >= first_whole});
            all_of[j].terms.push_back({column, 1.0});
            within.back().terms.push_back({column, kind.seconds[j] / kind.replicas / unit});
        }
    }
    for (Milp::Row& row : all_of) {
        if (!row.terms.empty()) problem.rows.push_back(std::move(row));
    }
    for (Milp::Row& row : within) problem.rows.push_back(std::move(row));
    return problem;
}

}  // namespace loratrain
