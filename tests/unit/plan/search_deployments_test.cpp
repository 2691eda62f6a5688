#include "plan/deployments/search_deployments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "plan/deployments/bisect_deployments.h"
#include "plan/deployments/exchange_replicas.h"
#include "plan/milp.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

using Counts = std::vector<std::int32_t>;

/// Seconds of a sample are its length over what its ranks do.
ReplicaOption by_length(std::int32_t ranks, double efficiency, const std::vector<double>& lengths,
                        std::size_t held) {
    ReplicaOption option{ranks, {}, 0.0};
    for (std::size_t j = 0; j < held; ++j) {
        option.seconds.push_back(lengths[j] / (ranks * efficiency));
    }
    return option;
}

/// LobRA, section 3: four buckets, and replicas of 1, 2, 4 and 8 GPUs that hold one more each. The
/// paper has no lengths: these make its deployment the best one.
DeploymentTask paper_example() {
    const std::vector<double> lengths{1024, 2800, 5600, 11500};
    return {16,
            {196, 62, 16, 4},
            {by_length(1, 1.0, lengths, 1), by_length(2, 0.9, lengths, 2),
             by_length(4, 0.8, lengths, 3), by_length(8, 0.6, lengths, 4)}};
}

/// All ways of making up the ranks that hold the last bucket.
void for_each_multiset(const DeploymentTask& task, const std::function<void(const Counts&)>& use) {
    Counts counts(task.options.size(), 0);
    const std::function<void(std::size_t, std::int32_t, bool)> from =
        [&](std::size_t i, std::int32_t left, bool held) {
            if (left == 0 && held) use(counts);
            if (left == 0 || i == counts.size()) return;
            const ReplicaOption& option = task.options[i];
            for (std::int32_t n = 0; n * option.ranks <= left; ++n) {
                counts[i] = n;
                const bool all = n > 0 && option.seconds.size() == task.samples.size();
                from(i + 1, left - n * option.ranks, held || all);
            }
            counts[i] = 0;
        };
    from(0, task.ranks, false);
}

/// min over whole samples by trying all dispatches.
double least_by_trying(const DeploymentTask& task, const Counts& counts) {
    std::vector<double> ends;
    std::vector<const ReplicaOption*> replicas;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        for (std::int32_t n = 0; n < counts[i]; ++n) replicas.push_back(&task.options[i]);
    }
    for (const ReplicaOption* replica : replicas) ends.push_back(replica->filling);
    std::vector<std::size_t> samples;
    for (std::size_t j = 0; j < task.samples.size(); ++j) {
        samples.insert(samples.end(), static_cast<std::size_t>(task.samples[j]), j);
    }
    double best = std::numeric_limits<double>::infinity();
    const std::function<void(std::size_t)> deal = [&](std::size_t s) {
        const double last = *std::max_element(ends.begin(), ends.end());
        if (last >= best) return;
        if (s == samples.size()) {
            best = last;
            return;
        }
        for (std::size_t r = 0; r < replicas.size(); ++r) {
            if (samples[s] >= replicas[r]->seconds.size()) continue;
            ends[r] += replicas[r]->seconds[samples[s]];
            deal(s + 1);
            ends[r] -= replicas[r]->seconds[samples[s]];
        }
    };
    deal(0);
    return best;
}

DeploymentTask random_task(std::uint64_t seed) {
    Draw draw(seed);
    DeploymentTask task;
    task.ranks = draw.between(1, 12);
    const auto buckets = static_cast<std::size_t>(draw.between(1, 4));
    std::vector<double> lengths;
    for (std::size_t j = 0; j < buckets; ++j) {
        lengths.push_back((lengths.empty() ? 0.0 : lengths.back()) + draw.between(1, 9));
        task.samples.push_back(draw.between(0, 30));
    }
    const int options = draw.between(1, 6);
    for (int i = 0; i < options; ++i) {
        const auto held = static_cast<std::size_t>(draw.between(1, static_cast<int>(buckets)));
        task.options.push_back(
            by_length(draw.between(1, 5), 0.1 * draw.between(5, 10), lengths, held));
        for (double& seconds : task.options.back().seconds) seconds *= 0.1 * draw.between(9, 11);
        if (draw.one_in(2)) task.options.back().filling = draw.between(1, 5);
    }
    return task;
}

}  // namespace

/// Two replicas that sum gradients for longer than they gain make way for one on all ranks.
TEST(SearchDeployments, CountsSumsOverReplicas) {
    DeploymentTask task{2, {8}, {{1, {1.0}}, {2, {0.6}}}, {{8}}};
    EXPECT_EQ(search_deployments(task).solved.front().replicas, (Counts{2, 0}));
    EXPECT_EQ(with_exchange(task, {2, 0}, 4.0), 4.0);
    task.options[0].exchange = 3.0;
    EXPECT_EQ(with_exchange(task, {2, 0}, 4.0), 4.0 + 3.0);
    EXPECT_EQ(with_exchange(task, {1, 0}, 4.0), 4.0);
    EXPECT_EQ(search_deployments(task).solved.front().replicas, (Counts{0, 1}));
    task.adapters = 3.0;
    EXPECT_EQ(with_exchange(task, {2, 0}, 4.0), 4.0 + 1.0);
    EXPECT_EQ(with_exchange(task, {2, 0}, 1.5), 3.0 + 0.5);
}

/// Two pipelines that are dealt less as if they were filled every round: with one kind alone nobody
/// waits for that, beside replicas that do more all others do.
TEST(SearchDeployments, CountsWhatIsDealtForFillingsThatDoNotCome) {
    DeploymentTask task{4, {12}, {{2, {0.5}, 0.0, 4.0}, {1, {1.0}, 0.0, 0.0}}, {{12}}};
    EXPECT_EQ(dispatched_seconds(task, {2, 0}), 3.0);
    EXPECT_EQ(dispatched_seconds(task, {0, 4}), 3.0);
    EXPECT_EQ(dispatched_seconds(task, {1, 2}), 5.0);
    task.options[0].ahead = 0.0;
    EXPECT_EQ(dispatched_seconds(task, {1, 2}), 3.0);
}

TEST(SearchDeployments, FindsThatOfThePapersExample) {
    const DeploymentTask task = paper_example();
    const DeploymentSearch found = search_deployments(task);
    EXPECT_EQ(found.options, 4);
    EXPECT_EQ(found.combinations, 35);
    EXPECT_EQ(found.options_left_out, 0);
    ASSERT_FALSE(found.solved.empty());
    if (!milp_available()) GTEST_SKIP() << "greedy dispatch may prefer another one";
    EXPECT_EQ(found.solved.front().replicas, (Counts{4, 2, 0, 1}));
    const double homogeneous = balanced_round_seconds(task, {0, 0, 0, 2});
    EXPECT_LT(found.solved.front().seconds, homogeneous);
}

/// Quantiles of six log-normals as in LobRA's Table 2 for 7B on 16 A100s.
TEST(SearchDeployments, BeatsTheBestHomogeneousOneOnSkewedLengths) {
    constexpr std::array<double, 6> medians{120, 180, 250, 400, 700, 1500};
    constexpr std::array<double, 6> sigmas{.7, .7, .8, .8, .7, 1};
    const std::vector<double> ends{64,   128,  192,  256,  384,  512,  768,   1024,
                                   1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384};
    DeploymentTask task{16, std::vector<double>(ends.size(), 0.0), {}};
    std::vector<double> tokens(ends.size(), 0.0);
    std::vector<double> squares(ends.size(), 0.0);
    for (std::size_t d = 0; d < medians.size(); ++d) {
        constexpr int drawn = 6400;
        for (int q = 0; q < drawn; ++q) {
            const double p = (q + 0.5) / drawn;
            double low = -6.0;
            double high = 6.0;
            for (int step = 0; step < 60; ++step) {
                const double middle = 0.5 * (low + high);
                (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
            }
            const double length = std::clamp(medians[d] * std::exp(sigmas[d] * low), 32.0, 16384.0);
            const auto bucket = static_cast<std::size_t>(
                std::lower_bound(ends.begin(), ends.end(), length) - ends.begin());
            task.samples[bucket] += 64.0 / drawn;
            tokens[bucket] += 64.0 / drawn * length;
            squares[bucket] += 64.0 / drawn * length * length;
        }
    }
    constexpr std::array<double, 4> efficiency{1.0, .97, .92, .85};
    constexpr std::array<std::size_t, 4> held{10, 12, 14, 16};  // 2048 to 16384 tokens
    constexpr double per_token = 32 * 4.0 * 202e6 / 180e12;     // of 32 layers on an A100
    constexpr double per_square = 32 * 6.0 * 4096 / 100e12;
    constexpr double summed = 32 * 4.0 * 4096 * 2 / 150e9;
    for (std::size_t i = 0; i < 4; ++i) {
        const int tensor = 1 << i;
        ReplicaOption option{tensor, {}, 0.0};
        for (std::size_t j = 0; j < held[i]; ++j) {
            const double mean = tokens[j] / task.samples[j];
            const double work = per_token * mean + per_square * squares[j] / task.samples[j];
            option.seconds.push_back(work / (tensor * efficiency[i]) +
                                     summed * 2.0 * (tensor - 1) / tensor * mean);
        }
        task.options.push_back(option);
    }
    const DeploymentSearch found = search_deployments(task);
    ASSERT_FALSE(found.solved.empty());
    const double best = found.solved.front().seconds;
    const double homogeneous = balanced_round_seconds(task, {0, 0, 0, 2});
    EXPECT_LE(balanced_round_seconds(task, {6, 1, 0, 1}), 1.02 * best);
    EXPECT_NEAR(best / homogeneous, 0.74, 0.03);
}

TEST(SearchDeployments, IsAsGoodAsTryingAllThatTheBoundLetsThrough) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const DeploymentTask task = random_task(seed);
        double least = std::numeric_limits<double>::infinity();
        for_each_multiset(task, [&](const Counts& counts) {
            least = std::min(least, least_round_seconds(task, counts));
        });
        double best = std::numeric_limits<double>::infinity();
        double best_of_all = best;
        for_each_multiset(task, [&](const Counts& counts) {
            const double bound = least_round_seconds(task, counts);
            const double seconds = balanced_round_seconds(task, counts);
            EXPECT_GE(greedy_round_seconds(task, counts), seconds * (1.0 - 1e-9)) << seed;
            EXPECT_LE(bound, seconds * (1.0 + 1e-6)) << seed;
            best_of_all = std::min(best_of_all, seconds);
            if (bound <= 1.15 * least) best = std::min(best, seconds);
        });
        const DeploymentSearch found = search_deployments(task);
        ASSERT_EQ(found.solved.empty(), std::isinf(least)) << seed;
        if (found.solved.empty() || !milp_available()) continue;
        EXPECT_LE(found.solved.front().seconds, best * (1.0 + 1e-6)) << seed;
        EXPECT_GE(found.solved.front().seconds, best_of_all * (1.0 - 1e-6)) << seed;
        const Counts& chosen = found.solved.front().replicas;
        std::int32_t ranks = 0;
        for (std::size_t i = 0; i < chosen.size(); ++i) ranks += chosen[i] * task.options[i].ranks;
        EXPECT_EQ(ranks, task.ranks) << seed;
    }
}

TEST(SearchDeployments, FractionsOfSamplesAreNoSlowerThanWholeOnes) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        DeploymentTask task = random_task(seed);
        task.ranks = std::min(task.ranks, 6);
        for (double& samples : task.samples) samples = std::min(samples, 2.0);
        for_each_multiset(task, [&](const Counts& counts) {
            if (std::accumulate(counts.begin(), counts.end(), 0) > 3 || !milp_available()) return;
            EXPECT_LE(balanced_round_seconds(task, counts),
                      least_by_trying(task, counts) * (1.0 + 1e-6))
                << seed;
        });
    }
}

TEST(SearchDeployments, LeavesOutWhatOthersDoBetter) {
    const ReplicaOption single{1, {1.0, 2.0}, 0.0};
    const ReplicaOption pair{2, {0.5, 1.0}, 0.0};
    const ReplicaOption longer{2, {0.6, 1.2, 2.0}, 0.0};
    const ReplicaOption faster{2, {0.4, 1.0}, 0.0};
    const ReplicaOption filled{2, {0.4, 1.0}, 0.1};
    const ReplicaOption three{3, {0.1, 0.2}, 0.0};
    EXPECT_EQ(dominated_options({single, pair, longer, faster, filled, three}),
              (std::vector<bool>{false, true, false, false, true, false}));
    EXPECT_EQ(dominated_options({single, pair}, 1.5), (std::vector<bool>{false, false}));
    EXPECT_EQ(dominated_options({single, pair}, 2.0), (std::vector<bool>{false, true}));
    EXPECT_EQ(dominated_options({single, single}), (std::vector<bool>{false, true}));
    EXPECT_TRUE(dominated_options({}).empty());
}

TEST(SearchDeployments, FindsNoneWhereRanksOrSamplesDoNotFit) {
    EXPECT_TRUE(search_deployments({3, {1.0}, {{2, {1.0}, 0.0}}}).solved.empty());
    EXPECT_TRUE(search_deployments({2, {1.0, 0.0}, {{2, {1.0}, 0.0}}}).solved.empty());
    EXPECT_TRUE(search_deployments({2, {1.0}, {}}).solved.empty());
    EXPECT_EQ(search_deployments({2, {1.0}, {{2, {1.0}, 0.5}}}).solved.front().seconds, 1.5);
}

TEST(SearchDeployments, KeepsItsWorkWithinBounds) {
    std::vector<double> lengths(16);
    std::iota(lengths.begin(), lengths.end(), 1.0);
    DeploymentTask task{64, std::vector<double>(16, 10.0), {}};
    for (int ranks = 1; ranks <= 40; ++ranks) {
        const auto held = std::min<std::size_t>(16, 4 + static_cast<std::size_t>(ranks) / 2);
        task.options.push_back(by_length(ranks, 1.0 - 0.01 * (ranks % 7), lengths, held));
    }
    const DeploymentSearch found = search_deployments(task);
    EXPECT_GT(found.combinations, most_combinations);
    EXPECT_GT(found.options_left_out, 0);
    EXPECT_LT(found.options_left_out, found.options);
    EXPECT_FALSE(found.solved.empty());
}

namespace {

/// Replicas of eight ranks in two sizes, the larger of which takes every sample for longer, among
/// so many pipelines that wait long to be filled that some options are left out.
DeploymentTask two_sizes_among_pipelines() {
    DeploymentTask task{64, {96, 4}, {{8, {1.3, 10.4}}, {8, {1.0}}}, {{96, 4}}};
    for (int ranks = 3; ranks <= 40; ++ranks) {
        const double token = (8.0 - 0.05 * ranks) / ranks;
        task.options.push_back({ranks, {token, 8.0 * token}, 40.0});
        task.options.push_back({ranks, {0.98 * token}, 40.0});
    }
    return task;
}

double best_of_two_sizes(const DeploymentTask& task) {
    double best = std::numeric_limits<double>::infinity();
    for (std::int32_t large = 1; large <= 8; ++large) {
        Counts counts(task.options.size(), 0);
        counts[0] = large;
        counts[1] = 8 - large;
        best = std::min(best, dispatched_seconds(task, counts));
    }
    return best;
}

}  // namespace

TEST(SearchDeployments, MixesSizesOfReplicasThatAreCutAlike) {
    const DeploymentTask task = two_sizes_among_pipelines();
    const DeploymentSearch found = search_deployments(task);
    ASSERT_GT(found.options_left_out, 0);
    ASSERT_FALSE(found.solved.empty());
    EXPECT_LE(found.solved.front().seconds, best_of_two_sizes(task));
    EXPECT_TRUE(is_even(task, found.solved.front()));
}

TEST(ExchangeReplicas, GainsInEachStepAndKeepsTheRanks) {
    const DeploymentTask task = two_sizes_among_pipelines();
    const auto seconds = [&](const Counts& counts) { return dispatched_seconds(task, counts); };
    Counts start(task.options.size(), 0);
    start[0] = 8;
    double before = seconds(start);
    const std::vector<Counts> steps = exchange_replicas(task, {0, 1}, start, seconds);
    ASSERT_FALSE(steps.empty());
    for (const Counts& counts : steps) {
        EXPECT_LT(seconds(counts), before);
        before = seconds(counts);
        EXPECT_EQ(counts[0] + counts[1], 8);
        EXPECT_GE(counts[0], 1);  // the only one that holds the last bucket
    }
    EXPECT_DOUBLE_EQ(before, best_of_two_sizes(task));
    EXPECT_TRUE(exchange_replicas(task, {0, 1}, steps.back(), seconds).empty());
}

TEST(SearchDeployments, EvenOnesHaveReplicasOfAsManyRanksWithoutFilling) {
    const DeploymentTask task{4, {1.0}, {{2, {1.0}}, {2, {1.0}, 0.5}, {1, {1.0}}, {2, {0.9}}}};
    EXPECT_TRUE(is_even(task, {{2, 0, 0, 0}, 0.0, 0.0}));
    EXPECT_TRUE(is_even(task, {{1, 0, 0, 1}, 0.0, 0.0}));
    EXPECT_FALSE(is_even(task, {{1, 1, 0, 0}, 0.0, 0.0}));
    EXPECT_FALSE(is_even(task, {{1, 0, 2, 0}, 0.0, 0.0}));
}

TEST(BisectDeployments, EndsWithThatOfThePapersExample) {
    if (!milp_available()) GTEST_SKIP() << "there is no solver";
    const DeploymentTask task = paper_example();
    const double within = balanced_round_seconds(task, {0, 0, 0, 2});
    const auto found = bisect_deployments(task, {0, 1, 2, 3}, within);
    ASSERT_FALSE(found.empty());
    const double best = balanced_round_seconds(task, {4, 2, 0, 1});
    EXPECT_LE(balanced_round_seconds(task, found.back()), 1.02 * best);
    for (const Counts& counts : found) EXPECT_LE(balanced_round_seconds(task, counts), within);
    EXPECT_TRUE(bisect_deployments(task, {0, 1, 2}, within).empty());  // none holds the longest
    EXPECT_TRUE(bisect_deployments(task, {0, 1, 2, 3}, 0.5 * best).empty());
}

TEST(BisectDeployments, ComesNearWhatTryingAllFinds) {
    if (!milp_available()) GTEST_SKIP() << "there is no solver";
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        const DeploymentTask task = random_task(seed);
        double best = std::numeric_limits<double>::infinity();
        double worst = 0.0;
        for_each_multiset(task, [&](const Counts& counts) {
            const double seconds = balanced_round_seconds(task, counts);
            best = std::min(best, seconds);
            worst = std::max(worst, seconds);
        });
        if (worst == 0.0) continue;
        std::vector<std::size_t> all(task.options.size());
        std::iota(all.begin(), all.end(), std::size_t{0});
        const auto found = bisect_deployments(task, all, worst * (1.0 + 1e-9));
        if (found.empty()) {  // nothing to bisect
            EXPECT_LE(worst, 1.02 * best) << seed;
            continue;
        }
        EXPECT_LE(balanced_round_seconds(task, found.back()), 1.02 * best) << seed;
        std::int32_t ranks = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
            ranks += found.back()[i] * task.options[i].ranks;
        EXPECT_EQ(ranks, task.ranks) << seed;
    }
}

/// In the mean the second replica is just enough for the one long sample of a round, but not where
/// two come together.
TEST(SearchDeployments, GoesByRoundsNotByTheirMean) {
    DeploymentTask task{4, {8.0, 1.0}, {{1, {1.0}, 0.0}, {2, {0.6, 3.6}, 0.0}}};
    if (milp_available()) {
        EXPECT_EQ(search_deployments(task).solved.front().replicas, (Counts{2, 1}));
    }
    task.rounds = {{8, 0}, {8, 2}};
    EXPECT_DOUBLE_EQ(dispatched_seconds(task, {2, 1}), 0.5 * (2.4 + 7.2));
    const OptionCounts best = search_deployments(task).solved.front();
    EXPECT_EQ(best.replicas, (Counts{0, 2}));
    EXPECT_DOUBLE_EQ(best.seconds, 0.5 * (2.4 + 6.0));
    EXPECT_LE(best.bound, best.seconds * (1.0 + 1e-9));
}

}  // namespace loratrain::plan_test
