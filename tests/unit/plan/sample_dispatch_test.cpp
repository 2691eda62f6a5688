#include "plan/pack/sample_dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "plan/cost/built_in_costs.h"
#include "plan/pack/batch_source.h"
#include "plan/replica_view.h"
#include "plan/schedule/schedule_stream.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// A replica of the same layers on so many lanes and stages.
PackRules rules_of(std::int32_t tensor, std::int32_t stages, std::int64_t capacity) {
    ModelSpec model = cheap_head_model(4);
    model.vocab_size = 64;
    PackRules rules;
    rules.capacity = capacity;
    rules.tensor = tensor;
    rules.costs = built_in_costs(model, DType::f32, "cpu", tensor);
    for (std::int32_t s = 0; s < stages; ++s) {
        StagePlan stage;
        stage.layer_count = 4 / stages;
        stage.has_embedding = s == 0;
        stage.has_head = s + 1 == stages;
        rules.stages.push_back(stage);
    }
    return rules;
}

Round round_of(const std::vector<std::vector<std::int32_t>>& lengths, std::int32_t group = 1) {
    Round round;
    for (std::size_t a = 0; a < lengths.size(); ++a) {
        PendingBatch batch{static_cast<AdapterId>(a), 3, {}, group};
        for (const std::int32_t tokens : lengths[a]) {
            const auto index = static_cast<std::int32_t>(batch.samples.size());
            batch.samples.push_back({index, tokens, tokens - 1});
        }
        round.push_back(batch);
    }
    return round;
}

Round random_round(Draw& draw, int adapters, int samples, int longest) {
    std::vector<std::vector<std::int32_t>> lengths(static_cast<std::size_t>(adapters));
    for (int i = 0; i < samples; ++i) {
        const int most = draw.one_in(3) ? longest : longest / 4;
        lengths[static_cast<std::size_t>(draw.between(0, adapters - 1))].push_back(
            draw.between(1, most));
    }
    std::erase_if(lengths, [](const auto& batch) { return batch.empty(); });
    return round_of(lengths);
}

/// When the last replica ends.
double end_of(std::span<const PackRules> replicas, const std::vector<Round>& parts) {
    double last = 0.0;
    for (std::size_t r = 0; r < parts.size(); ++r) {
        if (parts[r].empty()) continue;
        double end = filling_seconds(replicas[r]);
        for (const PendingBatch& batch : parts[r]) {
            for (const SampleRef& sample : batch.samples) {
                end += dispatch_seconds(replicas[r], {&sample, 1});
            }
        }
        last = std::max(last, end);
    }
    return last;
}

/// The earliest end of any way to deal the samples.
double best_end(std::span<const PackRules> replicas, const Round& round) {
    std::vector<SampleRef> samples;
    for (const PendingBatch& batch : round) {
        samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    }
    double best = std::numeric_limits<double>::infinity();
    std::vector<double> ends(replicas.size(), 0.0);
    const auto deal = [&](const auto& self, std::size_t next) -> void {
        const double end = *std::max_element(ends.begin(), ends.end());
        if (end >= best) return;
        if (next == samples.size()) {
            best = end;
            return;
        }
        for (std::size_t r = 0; r < replicas.size(); ++r) {
            if (samples[next].tokens > replicas[r].capacity) continue;
            const double before = ends[r];
            ends[r] += dispatch_seconds(replicas[r], {&samples[next], 1}) +
                       (before > 0.0 ? 0.0 : filling_seconds(replicas[r]));
            self(self, next + 1);
            ends[r] = before;
        }
    };
    deal(deal, 0);
    return best;
}

std::vector<Round> dealt(std::span<const PackRules> replicas, const Round& round) {
    return dispatch(replicas, round, DispatchRule::balanced);
}

/// The longest sample first, each to the replica that ends first with it.
double longest_first_end(std::span<const PackRules> replicas, const Round& round) {
    std::vector<SampleRef> samples;
    for (const PendingBatch& batch : round) {
        samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    }
    std::stable_sort(samples.begin(), samples.end(),
                     [](const auto& a, const auto& b) { return a.tokens > b.tokens; });
    std::vector<double> ends;
    for (const PackRules& replica : replicas) ends.push_back(filling_seconds(replica));
    for (const SampleRef& sample : samples) {
        std::size_t first = replicas.size();
        double end = std::numeric_limits<double>::infinity();
        for (std::size_t r = 0; r < replicas.size(); ++r) {
            if (replicas[r].capacity < sample.tokens) continue;
            const double own = ends[r] + dispatch_seconds(replicas[r], {&sample, 1});
            if (own < end) first = r;
            end = std::min(end, own);
        }
        ends[first] = end;
    }
    return *std::max_element(ends.begin(), ends.end());
}

/// Every sample is dealt once, in order, to a replica that takes it.
void expect_dealt(std::span<const PackRules> replicas, const Round& round,
                  const std::vector<Round>& parts) {
    ASSERT_EQ(parts.size(), replicas.size());
    std::map<AdapterId, std::multiset<std::int32_t>> found;
    for (std::size_t r = 0; r < parts.size(); ++r) {
        for (const PendingBatch& batch : parts[r]) {
            EXPECT_FALSE(batch.samples.empty());
            EXPECT_EQ(batch.step, 3);
            for (std::size_t i = 0; i < batch.samples.size(); ++i) {
                if (i > 0) {
                    EXPECT_LT(batch.samples[i - 1].index, batch.samples[i].index);
                }
                EXPECT_LE(batch.samples[i].tokens, replicas[r].capacity);
                found[batch.adapter].insert(batch.samples[i].index);
            }
        }
    }
    std::map<AdapterId, std::multiset<std::int32_t>> wanted;
    for (const PendingBatch& batch : round) {
        for (const SampleRef& sample : batch.samples) wanted[batch.adapter].insert(sample.index);
    }
    EXPECT_EQ(found, wanted);
}

}  // namespace

TEST(Dispatch, EndsNotMuchLaterThanTheBestOfAllWays) {
    const std::vector<std::vector<PackRules>> deployments{
        {rules_of(1, 1, 300), rules_of(1, 1, 300)},
        {rules_of(1, 2, 300), rules_of(1, 1, 100)},
        {rules_of(2, 1, 300), rules_of(1, 1, 100), rules_of(1, 1, 100)}};
    double worst = 0.0;
    for (int seed = 0; seed < 60; ++seed) {
        Draw draw(static_cast<std::uint64_t>(seed));
        const auto& replicas = deployments[static_cast<std::size_t>(seed) % deployments.size()];
        const Round round = random_round(draw, draw.between(1, 3), draw.between(1, 9), 300);
        const std::vector<Round> parts = dealt(replicas, round);
        expect_dealt(replicas, round, parts);
        const double share = end_of(replicas, parts) / best_end(replicas, round);
        EXPECT_GE(share, 1.0 - 1e-12);
        EXPECT_LE(share, 1.5) << "seed " << seed;
        worst = std::max(worst, share);
    }
    RecordProperty("worst_share_in_thousandths", static_cast<int>(1000 * worst));
}

/// However unlike the lengths are of samples that a bucket would hold.
TEST(Dispatch, ReplicasEndWithinTheShortestSample) {
    const std::vector<PackRules> replicas{rules_of(2, 1, 900), rules_of(1, 1, 900),
                                          rules_of(1, 1, 900)};
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
        Draw draw(seed);
        Round round = random_round(draw, 3, 90, 900);
        std::vector<SampleRef>& samples = round.front().samples;
        for (std::int32_t i = 0; i < 60; ++i) {
            samples.push_back({static_cast<std::int32_t>(samples.size()), 3, 2});
        }
        const std::vector<Round> parts = dealt(replicas, round);
        expect_dealt(replicas, round, parts);
        double first = std::numeric_limits<double>::infinity();
        for (std::size_t r = 0; r < parts.size(); ++r) {
            first = std::min(first, end_of({&replicas[r], 1}, {parts[r]}));
        }
        const SampleRef shortest{0, 3, 2};
        EXPECT_LE(end_of(replicas, parts), first + dispatch_seconds(replicas[1], {&shortest, 1}));
    }
}

TEST(Dispatch, KindsOfReplicasAreBalancedBetterThanGreedily) {
    if (!milp_available()) GTEST_SKIP() << "built without a solver";
    std::vector<PackRules> replicas{rules_of(4, 1, 4000)};
    replicas.insert(replicas.end(), 2, rules_of(2, 1, 2000));
    replicas.insert(replicas.end(), 4, rules_of(1, 1, 600));
    int better = 0;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        Draw draw(seed);
        const Round round = random_round(draw, 4, 150, draw.between(1000, 4000));
        const std::vector<Round> parts = dealt(replicas, round);
        expect_dealt(replicas, round, parts);
        const double share = end_of(replicas, parts) / longest_first_end(replicas, round);
        EXPECT_LE(share, 1.0 + 1e-12) << "seed " << seed;
        if (share < 0.998) ++better;
    }
    EXPECT_GE(better, 1);
}

/// Of all ways to give whole samples of two buckets to two kinds.
TEST(Dispatch, TheMilpIsThatOfThePaper) {
    if (!milp_available()) GTEST_SKIP() << "built without a solver";
    const DispatchTask task{{7, 3}, {{2, 0.5, {1.0, 4.0}}, {3, 0.0, {1.7}}}};
    double best = std::numeric_limits<double>::infinity();
    for (int first = 0; first <= 7; ++first) {
        const double one = (first * 1.0 + 3 * 4.0) / 2 + 0.5;
        best = std::min(best, std::max(one, (7 - first) * 1.7 / 3));
    }
    constexpr double unit = 4.0;
    const auto whole = solve_milp(dispatch_milp(task, unit, 0), {});
    ASSERT_TRUE(whole);
    EXPECT_NEAR(whole->objective * unit, best, 1e-6);
    const DispatchTask level{{7, 3}, {{2, 0.5, {1.0, 0.5}}, {3, 0.0, {1.7}}}};
    const auto shares = solve_milp(dispatch_milp(level, unit, 2), {});
    ASSERT_TRUE(shares);
    const double of_first = (7 * 1.7 / 3 - 0.5 - 1.5 / 2) / (1.7 / 3 + 0.5);
    EXPECT_NEAR(shares->objective * unit, (of_first + 1.5) / 2 + 0.5, 1e-6);
}

TEST(Dispatch, LongSamplesGoWhereTheyFitAndShortOnesElsewhere) {
    const std::vector<PackRules> replicas{rules_of(2, 1, 400), rules_of(1, 1, 50)};
    std::vector<std::int32_t> lengths(6, 400);
    lengths.insert(lengths.end(), 3, 50);
    const std::vector<Round> parts = dealt(replicas, round_of({lengths}));
    ASSERT_EQ(parts[0].size(), 1U);
    ASSERT_EQ(parts[1].size(), 1U);
    for (const SampleRef& sample : parts[0][0].samples) EXPECT_EQ(sample.tokens, 400);
    for (const SampleRef& sample : parts[1][0].samples) EXPECT_EQ(sample.tokens, 50);
}

TEST(Dispatch, KeepsGroupsTogether) {
    const std::vector<PackRules> replicas{rules_of(1, 1, 100), rules_of(1, 1, 100)};
    const std::vector<Round> parts =
        dealt(replicas, round_of({{10, 70, 20, 60, 30, 50, 40, 45}}, 2));
    for (const Round& part : parts) {
        ASSERT_EQ(part.size(), 1U);
        ASSERT_EQ(part[0].samples.size() % 2, 0U);
        for (std::size_t i = 0; i < part[0].samples.size(); i += 2) {
            EXPECT_EQ(part[0].samples[i].index % 2, 0);
            EXPECT_EQ(part[0].samples[i + 1].index, part[0].samples[i].index + 1);
        }
    }
}

TEST(Dispatch, OneSampleAndNone) {
    const std::vector<PackRules> replicas{rules_of(1, 1, 100), rules_of(1, 1, 100)};
    const std::vector<Round> one = dealt(replicas, round_of({{7}}));
    EXPECT_EQ(one[0].size() + one[1].size(), 1U);
    for (const Round& part : dealt(replicas, {})) EXPECT_TRUE(part.empty());
    EXPECT_THROW(dealt(replicas, round_of({{101}})), Error);
}

TEST(Dispatch, ByLengthGoesWhereItTakesTheFewestGpuSeconds) {
    const std::vector<PackRules> replicas{rules_of(2, 1, 400), rules_of(1, 1, 50),
                                          rules_of(1, 1, 50)};
    const Round round = round_of({{400, 50, 50, 50, 50, 50, 50, 50, 50}});
    const std::vector<Round> parts = dispatch(replicas, round, DispatchRule::length);
    expect_dealt(replicas, round, parts);
    ASSERT_EQ(parts[0].size(), 1U);
    EXPECT_EQ(parts[0][0].samples.size(), 1U);
    EXPECT_EQ(parts[0][0].samples[0].tokens, 400);
    EXPECT_EQ(parts[1][0].samples.size(), 4U);
    EXPECT_EQ(parts[2][0].samples.size(), 4U);
}

TEST(Dispatch, UniformlyAllGetAsManyGroups) {
    const std::vector<PackRules> replicas{rules_of(2, 1, 100), rules_of(1, 1, 100)};
    const Round round = round_of({{90, 10, 90, 10, 90, 10}, {5, 5, 60, 40}}, 2);
    const std::vector<Round> parts = dispatch(replicas, round, DispatchRule::uniform);
    expect_dealt(replicas, round, parts);
    EXPECT_EQ(parts[0][0].samples.size(), 4U);
    EXPECT_EQ(parts[1][0].samples.size(), 2U);
    EXPECT_EQ(parts[1][1].samples.size(), 2U);
    EXPECT_THROW(dispatch(std::vector{rules_of(2, 1, 100), rules_of(1, 1, 50)}, round,
                          DispatchRule::uniform),
                 Error);
}

/// Adapters of equal data would else lie on one replica each, and a part of them on few replicas.
TEST(Dispatch, SharesEveryBatchWhereReplicasEndAlike) {
    const Case test = uniform_case(8, 4, 64, 100, 8);
    Case several = test;
    several.job.parallel.deployment = {{1, 1, 4, {}}};
    const Plan plan = several.plan();
    std::vector<PackRules> rules;
    for (const ReplicaView& view : views_of(plan)) {
        rules.push_back(pack_rules(several.job, view, 1));
    }
    const std::vector<Round> rounds =
        rounds_at_start(several.job, plan, several.datasets, plan.first_admitted, {1});
    for (const Round& share : dispatch(rules, rounds.front(), DispatchRule::balanced)) {
        ASSERT_EQ(share.size(), 8U);
        for (const PendingBatch& batch : share) EXPECT_EQ(batch.samples.size(), 2U);
    }
}

}  // namespace loratrain::plan_test
