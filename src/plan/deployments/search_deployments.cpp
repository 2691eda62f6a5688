#include "plan/deployments/search_deployments.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "plan/deployments/bisect_deployments.h"
#include "plan/deployments/exchange_replicas.h"
#include "plan/milp.h"
#include "plan/pack/sample_dispatch.h"

namespace loratrain {

namespace {

constexpr double worth_solving = 1.15;
constexpr std::size_t least_solved = 8;
constexpr std::size_t most_kept = 512;
constexpr std::size_t exchanged = 3;  ///< deployments from which replicas are exchanged
constexpr int greedy_parts = 64;      // of a bucket
constexpr double long_exchange = 0.1;
constexpr double infinite = std::numeric_limits<double>::infinity();

bool holds(const ReplicaOption& option, std::size_t bucket) {
    return bucket < option.seconds.size();
}

double rank_seconds(const ReplicaOption& option, std::size_t bucket) {
    return holds(option, bucket) ? option.ranks * option.seconds[bucket] : infinite;
}

bool dominates(const ReplicaOption& one, const ReplicaOption& other, double long_sample) {
    if (other.ranks % one.ranks != 0 || one.seconds.size() < other.seconds.size()) return false;
    if (one.filling > other.filling) return false;
    if (one.exchange > std::max(long_exchange * long_sample, other.exchange)) return false;
    for (std::size_t j = 0; j < other.seconds.size(); ++j) {
        if (rank_seconds(one, j) > rank_seconds(other, j)) return false;
        if (one.seconds[j] > std::max(long_sample, other.seconds[j])) return false;
    }
    return true;
}

bool is_before(const OptionCounts& a, const OptionCounts& b) {
    return std::tie(a.bound, a.replicas) < std::tie(b.bound, b.replicas);
}

/// What the samples cost where each goes to the cheapest replica for it, if that is `cheapest`.
double sum_of(const std::vector<double>& samples, const std::vector<double>& cheapest) {
    double sum = 0.0;
    for (std::size_t j = 0; j < samples.size(); ++j) {
        if (samples[j] > 0.0) sum += samples[j] * cheapest[j];
    }
    return sum;
}

/// The first option with a replica.
std::size_t first_used(const OptionCounts& counts) {
    const auto used = std::ranges::find_if(counts.replicas, [](auto n) { return n > 0; });
    return static_cast<std::size_t>(used - counts.replicas.begin());
}

class MultisetSearch {
  public:
    explicit MultisetSearch(const DeploymentTask& task) : task_(task) {
        const std::vector<bool> dominated = dominated_options(task.options, long_sample());
        for (std::size_t i = 0; i < task.options.size(); ++i) {
            if (!dominated[i] && task.options[i].ranks <= task.ranks) used_.push_back(i);
        }
        found_.options = std::ssize(used_);
        found_.combinations = combinations(used_);
    }

    DeploymentSearch run() {
        const std::vector<std::size_t> all = used_;
        limit_options();
        std::stable_sort(used_.begin(), used_.end(), [&](std::size_t a, std::size_t b) {
            return task_.options[a].ranks > task_.options[b].ranks;
        });
        counts_.assign(task_.options.size(), 0);
        enumerate(0, task_.ranks, std::vector<double>(task_.samples.size(), infinite), 0.0);
        solve();
        if (found_.options_left_out > 0) look_among(all);
        sort_solved();
        return std::move(found_);
    }

  private:
    bool holds_all(std::size_t option) const {
        return task_.options[option].seconds.size() == task_.samples.size();
    }

    /// Seconds that a sample has to itself: half of the least that a round can take.
    double long_sample() const {
        if (task_.rounds.empty()) return infinite;
        std::vector<double> cheapest(task_.samples.size(), infinite);
        for (const ReplicaOption& option : task_.options) {
            for (std::size_t j = 0; j < option.seconds.size(); ++j) {
                cheapest[j] = std::min(cheapest[j], rank_seconds(option, j));
            }
        }
        return 0.5 * sum_of(task_.samples, cheapest) / task_.ranks;
    }

    /// Ways to make up the ranks, whatever they hold.
    double combinations(const std::vector<std::size_t>& options) const {
        std::vector<double> ways(static_cast<std::size_t>(task_.ranks) + 1, 0.0);
        ways[0] = 1.0;
        for (const std::size_t i : options) {
            const auto ranks = static_cast<std::size_t>(task_.options[i].ranks);
            for (std::size_t n = ranks; n < ways.size(); ++n) ways[n] += ways[n - ranks];
        }
        return ways.back();
    }

    /// Rank-seconds per sample of each bucket with the cheapest option.
    std::vector<double> cheapest_of_used() const {
        std::vector<double> cheapest(task_.samples.size(), infinite);
        for (const std::size_t i : used_) {
            const ReplicaOption& option = task_.options[i];
            for (std::size_t j = 0; j < option.seconds.size(); ++j) {
                cheapest[j] = std::min(cheapest[j], rank_seconds(option, j));
            }
        }
        return cheapest;
    }

    /// Rank-seconds of all samples that the option holds, against those of the cheapest options,
    /// and what filling takes beside them of ranks that are all cut like this.
    double excess(std::size_t i, const std::vector<double>& cheapest) const {
        const ReplicaOption& option = task_.options[i];
        double own = 0.0;
        double least = 0.0;
        for (std::size_t j = 0; j < option.seconds.size(); ++j) {
            own += task_.samples[j] * rank_seconds(option, j);
            least += task_.samples[j] * cheapest[j];
        }
        const double all = sum_of(task_.samples, cheapest);
        const double filling = all > 0.0 ? task_.ranks * option.filling / all : 0.0;
        return (least > 0.0 ? own / least : 1.0) + filling;
    }

    void limit_options() {
        std::vector<std::pair<double, std::size_t>> worst;
        const std::vector<double> cheapest = cheapest_of_used();
        for (const std::size_t i : used_) worst.emplace_back(excess(i, cheapest), i);
        std::sort(worst.rbegin(), worst.rend());
        for (const auto& [excess, option] : worst) {
            if (combinations(used_) <= most_combinations) return;
            std::vector<std::size_t> fewer = used_;
            std::erase(fewer, option);
            const bool enough = std::any_of(fewer.begin(), fewer.end(),
                                            [&](std::size_t i) { return holds_all(i); });
            if (!enough || combinations(fewer) == 0.0) continue;
            used_ = std::move(fewer);
            ++found_.options_left_out;
        }
    }

    /// Of used_[u] and those behind it for the ranks that are left; `cheapest`: rank-seconds per
    /// bucket with the options chosen so far.
    void enumerate(std::size_t u, std::int32_t left, const std::vector<double>& cheapest,
                   double filling) {
        if (left == 0) return add(cheapest, filling);
        if (u == used_.size()) return;
        const std::size_t option = used_[u];
        const ReplicaOption& replica = task_.options[option];
        enumerate(u + 1, left, cheapest, filling);
        std::vector<double> with = cheapest;
        for (std::size_t j = 0; j < replica.seconds.size(); ++j) {
            with[j] = std::min(with[j], rank_seconds(replica, j));
        }
        for (std::int32_t n = 1; n * replica.ranks <= left; ++n) {
            counts_[option] = n;
            filling += replica.ranks * replica.filling;
            enumerate(u + 1, left - n * replica.ranks, with, filling);
        }
        counts_[option] = 0;
    }

    void add(const std::vector<double>& cheapest, double filling) {
        if (!task_.samples.empty() && cheapest.back() == infinite) return;
        const double bound = (sum_of(task_.samples, cheapest) + filling) / task_.ranks;
        least_ = std::min(least_, bound);
        if (is_alike(counts_)) {
            alone_.push_back({counts_, bound, 0.0});
            return;
        }
        if (bound > worth_solving * least_ && kept_.size() >= most_kept) return;
        kept_.push_back({counts_, bound, 0.0});
        if (kept_.size() >= 2 * most_kept) keep_lowest(most_kept);
    }

    void keep_lowest(std::size_t most) {
        std::sort(kept_.begin(), kept_.end(), is_before);
        kept_.resize(std::min(most, kept_.size()));
    }

    double solved_seconds(const OptionCounts& counts) const {
        return with_exchange(task_, counts.replicas,
                             task_.rounds.empty() ? balanced_round_seconds(task_, counts.replicas)
                                                  : dispatched_seconds(task_, counts.replicas));
    }

    void solve() {
        keep_lowest(most_kept);
        double best = infinite;
        const auto add_solved = [&](OptionCounts& counts) {
            counts.seconds = solved_seconds(counts);
            best = std::min(best, counts.seconds);
            found_.solved.push_back(std::move(counts));
        };
        for (OptionCounts& counts : alone_) add_solved(counts);
        for (OptionCounts& counts : kept_) {
            const bool worth = counts.bound <= worth_solving * least_ && counts.bound < best;
            if (!worth && found_.solved.size() >= least_solved) break;
            add_solved(counts);
        }
    }

    void sort_solved() {
        std::stable_sort(
            found_.solved.begin(), found_.solved.end(),
            [](const OptionCounts& a, const OptionCounts& b) { return a.seconds < b.seconds; });
    }

    /// False where it is solved already.
    bool solve_also(std::vector<std::int32_t> replicas) {
        const bool known =
            std::any_of(found_.solved.begin(), found_.solved.end(),
                        [&](const OptionCounts& counts) { return counts.replicas == replicas; });
        if (known) return false;
        OptionCounts counts{std::move(replicas), 0.0, 0.0};
        counts.bound = least_round_seconds(task_, counts.replicas);
        counts.seconds = solved_seconds(counts);
        found_.solved.push_back(std::move(counts));
        return true;
    }

    /// Where options were left out: what is found among all of them.
    void look_among(const std::vector<std::size_t>& options) {
        solve_alike(options);
        bisect(options);
        exchange(options);
    }

    void solve_alike(const std::vector<std::size_t>& options) {
        for (const std::size_t i : options) {
            const std::int32_t ranks = task_.options[i].ranks;
            if (task_.ranks % ranks != 0 || !holds_all(i)) continue;
            std::vector<std::int32_t> alike(task_.options.size(), 0);
            alike[i] = task_.ranks / ranks;
            solve_also(std::move(alike));
        }
    }

    void bisect(const std::vector<std::size_t>& options) {
        sort_solved();
        double within = infinite;
        for (std::size_t i = 0; i < std::min(least_solved, found_.solved.size()); ++i) {
            within = std::min(within, balanced_round_seconds(task_, found_.solved[i].replicas));
        }
        if (within == infinite) return;
        for (std::vector<std::int32_t>& replicas : bisect_deployments(task_, options, within)) {
            if (solve_also(std::move(replicas))) ++found_.bisected;
        }
    }

    /// From the best ones, and from the best even one among those of as many ranks.
    void exchange(const std::vector<std::size_t>& options) {
        sort_solved();
        std::vector<OptionCounts> starts = found_.solved;
        starts.resize(std::min(exchanged, starts.size()));
        for (OptionCounts& start : starts) exchange_from(std::move(start.replicas), options);
        const auto even = std::ranges::find_if(
            found_.solved, [&](const OptionCounts& counts) { return is_even(task_, counts); });
        if (even == found_.solved.end()) return;
        const std::int32_t ranks = task_.options[first_used(*even)].ranks;
        std::vector<std::size_t> alike = options;
        std::erase_if(alike, [&](std::size_t i) {
            return task_.options[i].ranks != ranks || task_.options[i].filling > 0.0;
        });
        exchange_from(even->replicas, alike);
    }

    void exchange_from(std::vector<std::int32_t> start, const std::vector<std::size_t>& options) {
        const auto seconds = [&](const std::vector<std::int32_t>& replicas) {
            return solved_seconds({replicas, 0.0, 0.0});
        };
        for (auto& replicas : exchange_replicas(task_, options, std::move(start), seconds)) {
            if (solve_also(std::move(replicas))) ++found_.exchanged;
        }
    }

    const DeploymentTask& task_;
    std::vector<std::size_t> used_;     ///< options
    std::vector<std::int32_t> counts_;  ///< of the multiset that is looked at
    double least_ = infinite;           ///< bound
    std::vector<OptionCounts> alone_;   ///< of one option
    std::vector<OptionCounts> kept_;    ///< of several
    DeploymentSearch found_;
};

/// A replica of a deployment in a round.
struct BusyReplica {
    const ReplicaOption* option = nullptr;
    double end = 0.0;
};

double seconds_of(const std::vector<std::int32_t>& round, std::vector<BusyReplica> replicas) {
    for (std::size_t j = round.size(); j-- > 0;) {
        for (std::int32_t sample = 0; sample < round[j]; ++sample) {
            BusyReplica* first = nullptr;
            double end = infinite;
            for (BusyReplica& replica : replicas) {
                if (!holds(*replica.option, j)) continue;
                if (replica.end + replica.option->seconds[j] >= end) continue;
                first = &replica;
                end = replica.end + replica.option->seconds[j];
            }
            LORATRAIN_CHECK(first != nullptr, "no replica holds bucket ", j);
            first->end = end;
        }
    }
    double last = 0.0;
    for (const BusyReplica& replica : replicas) {
        last = std::max(last, replica.end - replica.option->ahead);
    }
    return last;
}

DispatchTask dispatch_task(const DeploymentTask& task, const std::vector<std::int32_t>& replicas) {
    DispatchTask dispatch{task.samples, {}};
    for (std::size_t i = 0; i < replicas.size(); ++i) {
        const ReplicaOption& option = task.options[i];
        if (replicas[i] > 0) {
            dispatch.kinds.push_back({replicas[i], option.filling, option.seconds});
        }
    }
    return dispatch;
}

}  // namespace

std::vector<bool> dominated_options(const std::vector<ReplicaOption>& options, double long_sample) {
    std::vector<bool> dominated(options.size(), false);
    for (std::size_t i = 0; i < options.size(); ++i) {
        for (std::size_t k = 0; k < options.size() && !dominated[i]; ++k) {
            if (k == i || !dominates(options[k], options[i], long_sample)) continue;
            dominated[i] = k < i || !dominates(options[i], options[k], long_sample);
        }
    }
    return dominated;
}

double least_round_seconds(const DeploymentTask& task, const std::vector<std::int32_t>& replicas) {
    std::vector<double> cheapest(task.samples.size(), infinite);
    double filling = 0.0;
    std::int32_t ranks = 0;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
        if (replicas[i] == 0) continue;
        const ReplicaOption& option = task.options[i];
        ranks += replicas[i] * option.ranks;
        filling += replicas[i] * option.ranks * option.filling;
        for (std::size_t j = 0; j < option.seconds.size(); ++j) {
            cheapest[j] = std::min(cheapest[j], rank_seconds(option, j));
        }
    }
    return (sum_of(task.samples, cheapest) + filling) / ranks;
}

double most_tokens_per_second(const DeploymentTask& task,
                              const std::vector<std::int32_t>& replicas) {
    std::vector<double> cheapest(task.samples.size(), infinite);
    std::int32_t ranks = 0;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
        if (replicas[i] == 0) continue;
        const ReplicaOption& option = task.options[i];
        ranks += replicas[i] * option.ranks;
        for (std::size_t j = 0; j < option.least.size(); ++j) {
            cheapest[j] = std::min(cheapest[j], option.ranks * option.least[j]);
        }
    }
    return task.tokens * ranks / sum_of(task.samples, cheapest);
}

double greedy_round_seconds(const DeploymentTask& task, const std::vector<std::int32_t>& replicas) {
    std::vector<double> ends;
    double last = 0.0;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
        ends.push_back(task.options[i].filling);
        if (replicas[i] > 0) last = std::max(last, ends.back());
    }
    for (std::size_t j = task.samples.size(); j-- > 0;) {
        for (int part = 0; part < greedy_parts && task.samples[j] > 0.0; ++part) {
            std::size_t first = replicas.size();
            double end = infinite;
            for (std::size_t i = 0; i < replicas.size(); ++i) {
                if (replicas[i] == 0 || !holds(task.options[i], j)) continue;
                const double seconds =
                    task.options[i].seconds[j] * task.samples[j] / greedy_parts / replicas[i];
                if (ends[i] + seconds >= end) continue;
                first = i;
                end = ends[i] + seconds;
            }
            LORATRAIN_CHECK(first < replicas.size(), "no replica holds bucket ", j);
            ends[first] = end;
            last = std::max(last, end);
        }
    }
    return last;
}

double balanced_round_seconds(const DeploymentTask& task,
                              const std::vector<std::int32_t>& replicas) {
    const double greedy = greedy_round_seconds(task, replicas);
    if (greedy <= 0.0) return greedy;
    const auto solution =
        solve_milp(dispatch_milp(dispatch_task(task, replicas), greedy, task.samples.size()), {});
    return solution ? std::min(greedy, solution->objective * greedy) : greedy;
}

double with_exchange(const DeploymentTask& task, const std::vector<std::int32_t>& replicas,
                     double seconds) {
    if (std::accumulate(replicas.begin(), replicas.end(), 0) < 2) return seconds;
    double exchange = 0.0;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
        if (replicas[i] > 0) exchange = std::max(exchange, task.options[i].exchange);
    }
    return std::max(seconds + exchange / task.adapters, exchange + seconds / task.adapters);
}

bool is_even(const DeploymentTask& task, const OptionCounts& counts) {
    const std::int32_t ranks = task.options[first_used(counts)].ranks;
    for (std::size_t i = 0; i < task.options.size(); ++i) {
        if (counts.replicas[i] == 0) continue;
        if (task.options[i].ranks != ranks || task.options[i].filling > 0.0) return false;
    }
    return true;
}

bool is_alike(const std::vector<std::int32_t>& replicas) {
    return std::ranges::count(replicas, 0) + 1 == std::ssize(replicas);
}

double dispatched_seconds(const DeploymentTask& task, const std::vector<std::int32_t>& replicas) {
    std::vector<BusyReplica> busy;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
        busy.insert(busy.end(), static_cast<std::size_t>(replicas[i]),
                    {&task.options[i], task.options[i].filling + task.options[i].ahead});
    }
    double sum = 0.0;
    for (const std::vector<std::int32_t>& round : task.rounds) sum += seconds_of(round, busy);
    return sum / static_cast<double>(task.rounds.size());
}

DeploymentSearch search_deployments(const DeploymentTask& task) {
    LORATRAIN_CHECK(task.ranks >= 1, task.ranks, " ranks");
    for (const ReplicaOption& option : task.options) {
        LORATRAIN_CHECK(option.ranks >= 1 && option.seconds.size() <= task.samples.size(),
                        "an option of ", option.ranks, " ranks and ", option.seconds.size(),
                        " buckets");
    }
    return MultisetSearch(task).run();
}

}  // namespace loratrain
