#include "plan/pack/pack_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "base/threads.h"
#include "plan/milp.h"
#include "plan/pack/length_buckets.h"
#include "plan/timing/pipeline_time.h"
#include "support/sanitized.h"

namespace loratrain {
namespace {

using SampleLengths = std::vector<std::int64_t>;

std::int64_t sum_of(const std::vector<std::int32_t>& bin, const SampleLengths& tokens) {
    std::int64_t sum = 0;
    for (const std::int32_t item : bin) sum += tokens[static_cast<std::size_t>(item)];
    return sum;
}

SampleLengths random_lengths(std::uint64_t seed, std::int64_t most_items, std::int64_t capacity) {
    const std::uint64_t key = mix_key(seed, 5);
    SampleLengths lengths(1 + uniform_int(key, 0, static_cast<std::uint64_t>(most_items)));
    const std::uint64_t longest = 1 + uniform_int(key, 1, static_cast<std::uint64_t>(capacity));
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        lengths[i] = 1 + static_cast<std::int64_t>(uniform_int(key, 2 + i, longest));
    }
    return lengths;
}

void expect_packed(const Bins& bins, const SampleLengths& tokens, std::int64_t capacity) {
    std::vector<std::int32_t> all;
    for (const auto& bin : bins) {
        EXPECT_FALSE(bin.empty());
        EXPECT_LE(sum_of(bin, tokens), capacity);
        all.insert(all.end(), bin.begin(), bin.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<std::int32_t> each(tokens.size());
    std::iota(each.begin(), each.end(), 0);
    EXPECT_EQ(all, each);
}

/// Fewest bins, and the emptiest possible one among them, by trying everything.
std::pair<std::size_t, std::int64_t> best_by_trying(const SampleLengths& tokens,
                                                    std::int64_t capacity) {
    std::pair<std::size_t, std::int64_t> best{tokens.size() + 1, 0};
    std::vector<std::int64_t> bins;
    const std::function<void(std::size_t)> place = [&](std::size_t item) {
        if (bins.size() > best.first) return;
        if (item == tokens.size()) {
            best = std::min(best, {bins.size(), *std::min_element(bins.begin(), bins.end())});
            return;
        }
        for (std::size_t b = 0; b <= bins.size(); ++b) {
            const bool fresh = b == bins.size();
            if (fresh) bins.push_back(0);
            if (bins[b] + tokens[item] <= capacity) {
                bins[b] += tokens[item];
                place(item + 1);
                bins[b] -= tokens[item];
            }
            if (fresh) bins.pop_back();
            if (fresh) break;
        }
    };
    place(0);
    return best;
}

class RandomBatches : public testing::TestWithParam<int> {
  protected:
    std::uint64_t seed() const { return static_cast<std::uint64_t>(GetParam()); }
};

TEST_P(RandomBatches, FewestIsNeverWorseThanGreedy) {
    for (const std::int64_t capacity : {10, 100, 6144}) {
        const SampleLengths tokens =
            random_lengths(seed(), GetParam() % 3 == 0 ? 64 : 14, capacity);
        const Bins greedy = pack_greedy(tokens, capacity);
        const Bins fewest = pack_fewest(tokens, capacity, {true, 20.0});
        expect_packed(greedy, tokens, capacity);
        expect_packed(fewest, tokens, capacity);
        EXPECT_LE(fewest.size(), greedy.size());
        EXPECT_GE(static_cast<std::int64_t>(fewest.size()), least_bins(tokens, capacity));
        if (fewest.size() == greedy.size()) {
            EXPECT_LE(sum_of(fewest.back(), tokens), sum_of(greedy.back(), tokens));
        }
    }
}

TEST_P(RandomBatches, FewestIsTheBestOfAll) {
    if (!milp_available()) GTEST_SKIP() << "built without CBC";
    const std::int64_t capacity = 100;
    const SampleLengths tokens = random_lengths(seed(), 8, capacity);
    const Bins fewest = pack_fewest(tokens, capacity, {true, 20.0});
    const auto [bins, emptiest] = best_by_trying(tokens, capacity);
    EXPECT_EQ(fewest.size(), bins);
    EXPECT_LE(sum_of(fewest.back(), tokens), emptiest + capacity / 64);
}

TEST_P(RandomBatches, EvenBinsAreEven) {
    const std::int64_t capacity = 1000;
    const SampleLengths tokens = random_lengths(seed(), 40, capacity);
    std::vector<PackSize> sizes;
    for (const std::int64_t t : tokens) sizes.push_back({t, 3 * t + t * t / 1000});
    const auto most = std::ssize(tokens);
    for (std::int64_t bins = 1; bins <= most; ++bins) {
        const std::optional<Bins> even = pack_even(sizes, capacity, bins);
        if (!even) {
            EXPECT_LT(bins, most);
            continue;
        }
        EXPECT_EQ(std::ssize(*even), bins);
        expect_packed(*even, tokens, capacity);
        std::int64_t total = 0;
        std::int64_t costliest = 0;
        for (const PackSize& size : sizes) {
            total += size.cost;
            costliest = std::max(costliest, size.cost);
        }
        std::int64_t largest = 0;
        for (const std::int32_t item : even->front()) {
            largest += sizes[static_cast<std::size_t>(item)].cost;
        }
        EXPECT_LE(largest, total / bins + costliest);
    }
}

TEST_P(RandomBatches, SubsetSumIsTheBestOfAll) {
    SampleLengths values = random_lengths(seed(), 10, 50);
    const std::int64_t target = 1 + static_cast<std::int64_t>(uniform_int(seed(), 7, 120));
    const std::int64_t most = target + static_cast<std::int64_t>(uniform_int(seed(), 8, 20));
    std::int64_t best = target;
    for (std::uint32_t mask = 0; mask < (1U << values.size()); ++mask) {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            if ((mask >> i & 1U) != 0) sum += values[i];
        }
        if (sum <= most) best = std::min(best, std::abs(sum - target));
    }
    SubsetRoom room(3, ~std::uint64_t{0});  // what another call has left there
    const std::vector<std::int32_t> chosen = nearest_subset(values, target, most, 1000, room);
    EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
    EXPECT_LE(sum_of(chosen, values), most);
    EXPECT_EQ(std::abs(sum_of(chosen, values) - target), best);
    EXPECT_LE(sum_of(nearest_subset(values, target, most, 7, room), values), most);
}

std::int64_t padding(const std::vector<std::int32_t>& bounds,
                     const std::vector<std::int32_t>& lengths) {
    std::int64_t sum = 0;
    for (const std::int32_t length : lengths) sum += padded_length(bounds, length) - length;
    return sum;
}

/// Least padding by trying every set of bounds.
std::int64_t least_padding(const std::vector<std::int32_t>& lengths, int most) {
    std::vector<std::int32_t> distinct(lengths.begin(), lengths.end());
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    std::int64_t best = INT64_MAX;
    for (std::uint32_t mask = 0; mask < (1U << (distinct.size() - 1)); ++mask) {
        std::vector<std::int32_t> bounds;
        for (std::size_t i = 0; i + 1 < distinct.size(); ++i) {
            if ((mask >> i & 1U) != 0) bounds.push_back(distinct[i]);
        }
        bounds.push_back(distinct.back());
        if (std::ssize(bounds) <= most) {
            best = std::min(best, padding(bounds, lengths));
        }
    }
    return best;
}

TEST_P(RandomBatches, BucketsPadTheLeast) {
    std::vector<std::int32_t> lengths;
    for (const std::int64_t length : random_lengths(seed(), 12, 200)) {
        lengths.push_back(static_cast<std::int32_t>(length));
    }
    for (const int most : {1, 2, 3, 5, 16}) {
        const std::vector<std::int32_t> bounds = length_buckets(lengths, most);
        EXPECT_LE(std::ssize(bounds), most);
        EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
        EXPECT_EQ(padding(bounds, lengths), least_padding(lengths, most));
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomBatches, testing::Range(0, random_cases(30)));

TEST(PackBatch, MilpFindsWhatGreedyMisses) {
    const SampleLengths tokens{4, 4, 3, 3, 3, 3};
    EXPECT_EQ(pack_greedy(tokens, 10).size(), 3U);
    EXPECT_EQ(least_bins(tokens, 10), 2);
    if (!milp_available()) GTEST_SKIP() << "built without CBC";
    EXPECT_EQ(pack_fewest(tokens, 10, {true, 20.0}).size(), 2U);
}

TEST(PackBatch, LeastBinsCountsWhatCannotShare) {
    EXPECT_EQ(least_bins(SampleLengths{6, 6, 6, 1}, 10), 3);
    EXPECT_EQ(least_bins(SampleLengths{5, 5, 5, 5}, 10), 2);
    EXPECT_EQ(least_bins(SampleLengths{8, 8, 3, 3, 3}, 10), 3);
}

TEST(PackBatch, Nothing) {
    EXPECT_TRUE(pack_greedy({}, 10).empty());
    EXPECT_TRUE(pack_fewest({}, 10, {}).empty());
    EXPECT_TRUE(length_buckets({}, 4).empty());
    EXPECT_THROW(padded_length(std::vector<std::int32_t>{4}, 5), Error);
}

/// Largest value below the weight limit.
Milp knapsack(const std::vector<double>& values, const std::vector<double>& weights, double limit) {
    Milp problem;
    Milp::Row row;
    for (std::size_t i = 0; i < values.size(); ++i) {
        problem.columns.push_back({0.0, 1.0, -values[i], true});
        row.terms.push_back({static_cast<int>(i), weights[i]});
    }
    row.upper = limit;
    problem.rows.push_back(row);
    return problem;
}

class SolveMilp : public testing::Test {
  protected:
    void SetUp() override {
        if (!milp_available()) GTEST_SKIP() << "built without CBC";
    }
    Milp problem_ = knapsack({10, 13, 7, 8}, {3, 4, 2, 3}, 7);
};

TEST_F(SolveMilp, Knapsack) {
    const std::optional<MilpSolution> solution = solve_milp(problem_, {});
    ASSERT_TRUE(solution);
    EXPECT_GT(std::min(solution->values[0], solution->values[1]), 0.5);
    EXPECT_LT(std::max(solution->values[2], solution->values[3]), 0.5);
    EXPECT_EQ(solution->objective, -23.0);
    EXPECT_TRUE(solution->optimal);
}

TEST_F(SolveMilp, CutoffAndInfeasible) {
    MilpLimits limits;
    limits.cutoff = -23.0;
    EXPECT_FALSE(solve_milp(problem_, limits));
    limits.cutoff = -22.5;
    EXPECT_TRUE(solve_milp(problem_, limits));
    Milp::Row impossible;
    impossible.lower = 3.0;
    impossible.terms = {{0, 1.0}, {1, 1.0}};
    problem_.rows.push_back(impossible);
    EXPECT_FALSE(solve_milp(problem_, {}));
}

/// A market split, which branch and bound hardly prunes: nodes without end.
TEST_F(SolveMilp, EndsByWorkAndNotByTime) {
    Milp split;
    for (int i = 0; i < 40; ++i) split.columns.push_back({0.0, 1.0, 0.0, true});
    std::uint32_t drawn = 7;
    for (int r = 0; r < 4; ++r) {
        Milp::Row row;
        double sum = 0.0;
        for (int i = 0; i < 40; ++i) {
            drawn = drawn * 1103515245U + 12345U;
            row.terms.push_back({i, 1.0 * ((drawn >> 16U) % 100)});
            sum += row.terms.back().factor;
        }
        for (const double sign : {1.0, -1.0}) {  // what is missed either way
            row.terms.push_back({static_cast<int>(split.columns.size()), sign});
            split.columns.push_back({0.0, 1e4, 1.0, false});
        }
        row.lower = row.upper = std::floor(sum / 2);
        split.rows.push_back(row);
    }
    MilpLimits limits;
    limits.nodes = std::int64_t{1} << 40U;
    limits.iterations = 2000;
    const std::optional<MilpSolution> solution = solve_milp(split, limits);
    ASSERT_TRUE(solution);
    EXPECT_FALSE(solution->optimal);
    const std::optional<MilpSolution> again = solve_milp(split, limits);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->values, solution->values);
}

TEST_F(SolveMilp, ContinuousColumns) {
    problem_.columns[3].integer = false;
    problem_.columns[3].upper = 0.5;
    const std::optional<MilpSolution> solution = solve_milp(problem_, {});
    ASSERT_TRUE(solution);
    EXPECT_NEAR(solution->objective, -23.0, 1e-9);
}

TEST_F(SolveMilp, SeveralThreadsAtOnce) {
    const auto solve = [](std::size_t i) {
        const SampleLengths tokens = random_lengths(1000 + i, 24, 500);
        return pack_fewest(tokens, 500, {true, 60.0});
    };
    std::vector<Bins> alone(random_cases(48));
    std::vector<Bins> together(alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) alone[i] = solve(i);
    parallel_for(together.size(), 6, [&](std::size_t i) { together[i] = solve(i); });
    EXPECT_EQ(together, alone);
}

PipelineLoad equal_load(std::int32_t stages, std::int32_t microbatches, std::int32_t batch) {
    PipelineLoad load;
    load.stages = load.max_in_flight = stages;
    const auto count = static_cast<std::size_t>(stages) * static_cast<std::size_t>(microbatches);
    load.forward.assign(count, 1);
    load.backward.assign(count, 2);
    for (std::int32_t m = 0; m < microbatches; ++m) load.required.push_back(m / batch * batch);
    return load;
}

TEST(PipelineTime, KnownBubbles) {
    const PipelineTime one = pipeline_time(equal_load(1, 5, 1));
    EXPECT_EQ(one.makespan, 15);
    EXPECT_EQ(one.idle_share(1), 0.0);
    // 1F1B of N microbatches on D stages: (N + D - 1) slots of 3.
    EXPECT_EQ(pipeline_time(equal_load(4, 8, 8)).makespan, 33);
    EXPECT_EQ(pipeline_time(equal_load(4, 8, 8)).busy, 4 * 24);
    // Drained after every batch of 4.
    EXPECT_EQ(pipeline_time(equal_load(4, 8, 4)).makespan, 2 * 21);
    EXPECT_EQ(pipeline_time(PipelineLoad()).makespan, 0);
}

TEST(PipelineTime, ImpossibleLoadIsAnError) {
    PipelineLoad load = equal_load(2, 2, 2);
    load.required[0] = 1;
    EXPECT_THROW(pipeline_time(load), Error);
}

}  // namespace
}  // namespace loratrain
