#include "plan/pack/pack_microbatches.h"
#include "plan/cost/built_in_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "config/model_presets.h"
#include "plan/pack/check_packing.h"
#include "plan/pack/compare_packings.h"
#include "plan/pack/length_buckets.h"
#include "plan/pack/pack_balanced.h"
#include "support/block_bound.h"
#include "support/sanitized.h"
#include "support/summary_lengths.h"
#include "unit/plan/pack_fixtures.h"

namespace loratrain::plan_test {

namespace {

constexpr SchedulePolicy policies[] = {SchedulePolicy::sequential, SchedulePolicy::one_f_one_b,
                                       SchedulePolicy::mlora, SchedulePolicy::balanced};

/// Batches of `lengths` tokens for each adapter and round; all tokens but one are targets.
std::vector<Round> equal_rounds(std::int32_t rounds, std::int32_t adapters,
                                const std::vector<std::int32_t>& lengths) {
    std::vector<Round> result(static_cast<std::size_t>(rounds));
    for (std::int32_t r = 0; r < rounds; ++r) {
        for (std::int32_t a = 0; a < adapters; ++a) {
            PendingBatch batch{AdapterId{a}, r, {}};
            for (const std::int32_t tokens : lengths) {
                const auto index = static_cast<std::int32_t>(batch.samples.size());
                batch.samples.push_back({index, tokens, tokens - 1});
            }
            result[static_cast<std::size_t>(r)].push_back(batch);
        }
    }
    return result;
}

std::vector<std::string> packed(PackRules rules, SchedulePolicy policy,
                                const std::vector<Round>& rounds) {
    rules.policy = policy;
    return packing_text(pack_microbatches(rules, rounds));
}

using Lines = std::vector<std::string>;

/// By a plain loop, beside the checker.
void expect_whole_pairs(const std::vector<Round>& rounds,
                        const std::vector<Microbatch>& microbatches) {
    std::map<std::tuple<AdapterId, std::int32_t, std::int32_t>, std::size_t> held_by;
    for (std::size_t m = 0; m < microbatches.size(); ++m) {
        for (const Segment& segment : microbatches[m].segments) {
            for (const SampleRef& s : segment.samples) {
                held_by[{segment.adapter, segment.step, s.index}] = m;
            }
        }
    }
    for (const Round& round : rounds) {
        for (const PendingBatch& batch : round) {
            for (std::size_t i = 0; i < batch.samples.size(); i += 2) {
                EXPECT_EQ(held_by.at({batch.adapter, batch.step, batch.samples[i].index}),
                          held_by.at({batch.adapter, batch.step, batch.samples[i + 1].index}));
            }
        }
    }
}

bool shares(const Microbatch& microbatch) {
    return microbatch.segments.size() > 1;
}

}  // namespace

class RandomPackings : public testing::TestWithParam<int> {
  protected:
    PackCase test_ = random_pack_case(static_cast<std::uint64_t>(GetParam()), 800);
};

/// Counts and order by plain loops, beside the checker.
TEST_P(RandomPackings, HoldEverySampleOnceInOrderWithinCapacity) {
    std::map<std::pair<AdapterId, std::int32_t>, std::multiset<std::int32_t>> expected;
    for (const Round& round : test_.rounds) {
        for (const PendingBatch& batch : round) {
            for (const SampleRef& sample : batch.samples) {
                expected[{batch.adapter, batch.step}].insert(sample.index);
            }
        }
    }
    for (const SchedulePolicy policy : policies) {
        test_.rules.policy = policy;
        const std::vector<Microbatch> microbatches = pack_microbatches(test_.rules, test_.rounds);
        EXPECT_EQ(join(check_packing(test_.rules.capacity, test_.rounds, microbatches), "\n"), "");
        std::map<std::pair<AdapterId, std::int32_t>, std::multiset<std::int32_t>> held;
        std::map<AdapterId, std::int32_t> newest;
        for (const Microbatch& microbatch : microbatches) {
            EXPECT_LE(microbatch.tokens(), test_.rules.capacity);
            for (const Segment& segment : microbatch.segments) {
                EXPECT_GE(segment.step, newest[segment.adapter]);
                newest[segment.adapter] = segment.step;
                for (const SampleRef& s : segment.samples) {
                    held[{segment.adapter, segment.step}].insert(s.index);
                }
            }
        }
        EXPECT_EQ(held, expected);
    }
}

TEST_P(RandomPackings, DoNotDependOnThreads) {
    test_.rules.threads = 1;
    const Lines one = packing_text(pack_microbatches(test_.rules, test_.rounds));
    test_.rules.threads = 4;
    EXPECT_EQ(packing_text(pack_microbatches(test_.rules, test_.rounds)), one);
}

TEST_P(RandomPackings, EveryVariantIsValid) {
    const BlockItems block = block_items(test_.rules, test_.rounds);
    std::set<AdapterId> adapters;
    for (const BlockBatch& batch : block.batches) adapters.insert(batch.adapter);
    const auto most = static_cast<std::int32_t>(adapters.size());
    for (const std::int32_t groups : {1, (most + 1) / 2, most}) {
        for (const Filling filling :
             {Filling::filled, Filling::evened, Filling::streamed, Filling::in_turn}) {
            for (const std::int64_t share : {1, 3, 20}) {
                const std::int64_t target = std::max<std::int64_t>(1, block.cost / share / 8);
                const Bins bins =
                    pack_variant(test_.rules, block, {filling, groups, target, BinOrder::peak});
                const auto microbatches = to_microbatches(test_.rounds, block, bins);
                EXPECT_EQ(
                    join(check_packing(test_.rules.capacity, test_.rounds, microbatches), "\n"),
                    "");
            }
        }
    }
}

TEST_P(RandomPackings, NeverCutGroups) {
    PackCase pairs = in_pairs(test_);
    for (const SchedulePolicy policy : policies) {
        pairs.rules.policy = policy;
        const std::vector<Microbatch> microbatches = pack_microbatches(pairs.rules, pairs.rounds);
        EXPECT_EQ(join(check_packing(pairs.rules.capacity, pairs.rounds, microbatches), "\n"), "");
        expect_whole_pairs(pairs.rounds, microbatches);
    }
}

TEST_P(RandomPackings, NoVariantCutsGroups) {
    const PackCase pairs = in_pairs(test_);
    const BlockItems block = block_items(pairs.rules, pairs.rounds);
    const std::int64_t target = std::max<std::int64_t>(1, block.cost / 12);
    for (const Filling filling :
         {Filling::filled, Filling::fewest, Filling::evened, Filling::streamed}) {
        const Bins bins = pack_variant(pairs.rules, block, {filling, 1, target, BinOrder::falling});
        const auto microbatches = to_microbatches(pairs.rounds, block, bins);
        EXPECT_EQ(join(check_packing(pairs.rules.capacity, pairs.rounds, microbatches), "\n"), "");
        expect_whole_pairs(pairs.rounds, microbatches);
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPackings, testing::Range(0, random_cases(10)));

TEST(PackBlock, SequentialTakesOneAdapterAfterAnother) {
    const std::vector<Round> rounds = equal_rounds(2, 2, {6, 5, 4});
    EXPECT_EQ(packed(small_rules(2, 10), SchedulePolicy::sequential, rounds),
              (Lines{"0@0 0*6 2*4|", "0@0 1*5|", "0@1 0*6 2*4|", "0@1 1*5|", "1@0 0*6 2*4|",
                     "1@0 1*5|", "1@1 0*6 2*4|", "1@1 1*5|"}));
}

TEST(PackBlock, OneFOneBCutsABatchForEveryStage) {
    const std::vector<Round> rounds = equal_rounds(1, 1, {3, 3, 3, 3, 3, 3});
    EXPECT_EQ(packed(small_rules(2, 100), SchedulePolicy::one_f_one_b, rounds),
              (Lines{"0@0 0*3 1*3 2*3|", "0@0 3*3 4*3 5*3|"}));
    EXPECT_EQ(packed(small_rules(2, 8), SchedulePolicy::one_f_one_b, rounds),
              (Lines{"0@0 0*3 1*3|", "0@0 2*3 3*3|", "0@0 4*3 5*3|"}));
    EXPECT_EQ(packed(small_rules(8, 100), SchedulePolicy::one_f_one_b, rounds).size(), 6U);
}

TEST(PackBlock, MloraTakesAdaptersInTurn) {
    const std::vector<Round> rounds = equal_rounds(2, 2, {6, 5, 4});
    EXPECT_EQ(packed(small_rules(2, 10), SchedulePolicy::mlora, rounds),
              (Lines{"0@0 0*6 2*4|", "0@0 1*5|", "1@0 0*6 2*4|", "1@0 1*5|", "0@1 0*6 2*4|",
                     "0@1 1*5|", "1@1 0*6 2*4|", "1@1 1*5|"}));
    EXPECT_EQ(packed(small_rules(4, 100), SchedulePolicy::mlora, rounds).size(), 12U);
}

TEST(PackBlock, BalancedSplitsALonelyAdapterOverTheStages) {
    const std::vector<Round> rounds = equal_rounds(3, 1, std::vector<std::int32_t>(16, 3000));
    const Lines lines = packed(small_rules(4, 60000), SchedulePolicy::balanced, rounds);
    EXPECT_GE(lines.size(), 12U);
}

TEST(PackBlock, BalancedIsNotSlowerThanFilledMicrobatches) {
    for (int seed = 0; seed < random_cases(12); ++seed) {
        PackCase test = random_pack_case(static_cast<std::uint64_t>(seed), 400);
        test.rules.packing = Packing::greedy;
        const BlockItems block = block_items(test.rules, test.rounds);
        if (block.items.empty()) continue;
        const BalancedPacking best = pack_balanced_block(test.rules, block);
        const PackVariant alone{Filling::filled, 1, 0, BinOrder::falling};
        const Bins filled = pack_variant(test.rules, block, alone);
        const PipelineTime time =
            pipeline_time(pipeline_load(test.rules, block, filled, best.repeats));
        EXPECT_LE(static_cast<double>(best.time.makespan),
                  1.05 * static_cast<double>(time.makespan));
    }
}

/// llama-3.1-8b on four H200s, the four adapters of the measured runs (tests/bench/RESULTS.md):
/// simulated tokens/s rise from policy to policy, and balanced leaves at most 11% idle.
TEST(PackBlock, BalancedIsFasterThanTheBaselinesOnMixedLengths) {
    const std::vector<Round> rounds = summary_rounds(nullptr, 32);
    const ModelSpec model = *model_preset("llama-3.1-8b");
    PackRules rules;
    rules.packing = Packing::greedy;
    rules.capacity = 7168;
    rules.costs = built_in_costs(model, DType::bf16, "h200");
    rules.stages = best_split(rules, static_cast<std::int32_t>(model.layers), 4, load_of(rounds));
    const auto tokens_per_second = [&](SchedulePolicy policy, std::int32_t in_flight) {
        rules.policy = policy;
        rules.max_in_flight = in_flight;
        PackingsByDepth known;
        return 1e9 * static_cast<double>(load_of(rounds).tokens) /
               block_times(rules, std::array{rules}, rounds, known).front();
    };
    const double sequential = tokens_per_second(SchedulePolicy::sequential, 1);
    const double one_f_one_b = tokens_per_second(SchedulePolicy::one_f_one_b, 4);
    const double mlora = tokens_per_second(SchedulePolicy::mlora, 4);
    const double balanced = tokens_per_second(SchedulePolicy::balanced, 4);
    EXPECT_GT(one_f_one_b, 1.5 * sequential);
    EXPECT_GT(mlora, 1.1 * one_f_one_b);
    EXPECT_GT(balanced, 1.2 * mlora);
    EXPECT_LE(pack_balanced_block(rules, block_items(rules, rounds)).time.idle_share(4), 0.11);
    RecordProperty("tokens_per_second",
                   cat(sequential, " ", one_f_one_b, " ", mlora, " ", balanced));
}

TEST(PackBlock, BalancedIsNeverSlowerThanMlora) {
    for (int seed = 0; seed < random_cases(12); ++seed) {
        PackCase test = random_pack_case(static_cast<std::uint64_t>(seed), 400);
        test.rules.packing = Packing::greedy;
        const BlockItems block = block_items(test.rules, test.rounds);
        if (block.items.empty() || block.items.size() > 400) continue;
        const BalancedPacking best = pack_balanced_block(test.rules, block);
        const Bins in_turn = pack_variant(test.rules, block, {Filling::in_turn, 1, 0});
        EXPECT_EQ(packing_text(to_microbatches(test.rounds, block, in_turn)),
                  packed(test.rules, SchedulePolicy::mlora, test.rounds));
        const PipelineTime time =
            pipeline_time(pipeline_load(test.rules, block, in_turn, best.repeats));
        EXPECT_LE(static_cast<double>(best.time.makespan),
                  1.003 * static_cast<double>(time.makespan));
    }
}

TEST(PackBlock, CountsBlocksOfBalancedByFilling) {
    const std::vector<Round> rounds = equal_rounds(2, 2, {6, 5, 4});
    PackRules rules = small_rules(2, 10);
    FillingCounts counts;
    EXPECT_EQ(to_text(counts), "");
    pack_microbatches(rules, rounds, &counts);
    pack_microbatches(rules, rounds, &counts);
    EXPECT_EQ(counts.all(), 2);
    const BalancedPacking packing = pack_balanced_block(rules, block_items(rules, rounds));
    EXPECT_EQ(counts.blocks[static_cast<std::size_t>(packing.variant.filling)], 2);
    rules.policy = SchedulePolicy::mlora;
    pack_microbatches(rules, rounds, &counts);
    EXPECT_EQ(counts.all(), 2);
    FillingCounts some;
    some.add(Filling::filled);
    some.add(Filling::streamed);
    some.add(Filling::streamed);
    EXPECT_EQ(to_text(some), "3 blocks: 2 streamed, 1 filled");
    FillingCounts more;
    more.add(Filling::fewest);
    EXPECT_EQ(to_text(more), "1 block: 1 filled by MILP");
    more.add(some);
    EXPECT_EQ(more.all(), 4);
}

/// Nothing that is packed comes below the bound, and one microbatch on one stage comes to it.
TEST(BlockBound, IsBelowEveryPacking) {
    for (const std::uint64_t seed : {1U, 3U, 5U, 6U}) {
        PackCase test = random_pack_case(seed, 400);
        test.rules.packing = Packing::greedy;
        const BlockItems block = block_items(test.rules, test.rounds);
        const BlockBound bound = block_bound(test.rules, block);
        for (const Filling filling : {Filling::filled, Filling::in_turn}) {
            const Bins bins = pack_variant(test.rules, block, {filling, 1, 0});
            EXPECT_GE(std::ssize(bins), bound.bins);
            const double rounding = 2.0 * static_cast<double>(bins.size());
            const PipelineTime time = pipeline_time(pipeline_load(test.rules, block, bins));
            EXPECT_GE(static_cast<double>(time.makespan) + rounding, bound.nanoseconds);
        }
    }
    const PackRules rules = small_rules(1, 100);
    const BlockItems block = block_items(rules, equal_rounds(1, 1, {20, 30, 50}));
    const auto one = pipeline_time(pipeline_load(rules, block, {{0, 1, 2}})).makespan;
    EXPECT_NEAR(block_bound(rules, block).nanoseconds, static_cast<double>(one), 2.0);
}

/// What rules packings out before they are made.
TEST(LeastTime, IsBelowEveryPacking) {
    for (const std::uint64_t seed : {1U, 2U, 3U, 5U, 6U}) {
        const PackCase test = random_pack_case(seed, 400);
        const BlockItems block = block_items(test.rules, test.rounds);
        const LeastTime least(test.rules, block);
        for (const std::int64_t share : {1, 2, 5, 20}) {
            const std::int64_t target = std::max<std::int64_t>(1, block.cost / share / 8);
            for (const Filling filling : {Filling::evened, Filling::streamed}) {
                const Bins bins = pack_variant(test.rules, block, {filling, 1, target});
                const PipelineLoad load = pipeline_load(test.rules, block, bins);
                EXPECT_LE(least.in(std::ssize(bins)), pipeline_time(load).makespan) << seed;
                const std::int64_t fewest =
                    filling == Filling::evened
                        ? evened_counts(block, portions(block, 1), target).front()
                        : least_microbatches(block, target + target / 8);
                EXPECT_LE(fewest, std::ssize(bins)) << seed;
                EXPECT_GT(least.in(fewest), 0);
            }
        }
    }
}

/// What is given up early is what does not matter; targets near each other make equal microbatches.
TEST(ComparePackings, AgreeOnWhatMatters) {
    for (const std::uint64_t seed : {1U, 3U, 5U, 6U}) {
        const PackCase test = random_pack_case(seed, 400);
        const BlockItems block = block_items(test.rules, test.rounds);
        std::vector<TriedPacking> tried;
        for (const Filling filling : {Filling::filled, Filling::evened, Filling::streamed}) {
            for (const std::int64_t parts :
                 {8000, 8001, 16000, 16003, 24000, 40000, 72000, 240000}) {
                const std::int64_t target = std::max<std::int64_t>(1, block.cost * 1000 / parts);
                for (const BinOrder order : {BinOrder::falling, BinOrder::peak}) {
                    tried.push_back({{filling, 1, target, order}, {}, 0});
                }
            }
        }
        std::vector<TriedPacking> all = tried;
        compare_packings(test.rules, block, 2, {all.size(), 1.0}, all);
        std::vector<std::int64_t> makespans;
        for (const TriedPacking& one : all) {
            EXPECT_EQ(one.bins, pack_variant(test.rules, block, one.variant));
            makespans.push_back(
                pipeline_time(pipeline_load(test.rules, block, one.bins, 2)).makespan);
            EXPECT_EQ(one.makespan, makespans.back());
        }
        std::sort(makespans.begin(), makespans.end());
        for (const auto& [count, factor] : {Relevance{3, 1.0}, Relevance{1, 1.03}}) {
            compare_packings(test.rules, block, 2, {count, factor}, tried);
            const double limit = factor * static_cast<double>(makespans[count - 1]);
            for (std::size_t i = 0; i < tried.size(); ++i) {
                const bool matters = static_cast<double>(all[i].makespan) <= limit;
                if (matters || tried[i].makespan != TriedPacking::too_long) {
                    EXPECT_EQ(tried[i].makespan, all[i].makespan) << seed << " " << i;
                }
            }
        }
    }
}

TEST(PackBlock, StreamsShareMicrobatchesBetweenAdapters) {
    const std::vector<Round> rounds = equal_rounds(30, 4, {1500, 900, 700, 400, 300});
    const PackRules rules = small_rules(4, 4096);
    const BlockItems block = block_items(rules, rounds);
    const std::int64_t target = block.cost * 2 / 3 / 120;
    const Bins bins = pack_variant(rules, block, {Filling::streamed, 4, target, {}});
    const std::vector<Microbatch> microbatches = to_microbatches(rounds, block, bins);
    EXPECT_GT(std::count_if(microbatches.begin(), microbatches.end(), shares), 30);
    std::int64_t even = 0;
    for (const auto& bin : bins) {
        std::int64_t cost = 0;
        for (const std::int32_t item : bin) cost += block.item(item).cost;
        if (std::abs(cost - target) < target / 5) ++even;
    }
    EXPECT_GT(even, std::ssize(bins) * 8 / 10);
}

TEST(PackBlock, MergesJoinEmptiestMicrobatches) {
    const std::vector<Round> rounds = equal_rounds(10, 3, {700, 400});
    const PackRules rules = small_rules(2, 1000);
    const BlockItems block = block_items(rules, rounds);
    const std::vector<Bins> filled = pack_filled(block, portions(block, 3), rules, false);
    const Merged merged = merge_portions(rules, block, filled);
    EXPECT_GT(merged.merges, 0);
    const auto time = [&](const Bins& bins) {
        return pipeline_time(pipeline_load(rules, block, bins)).makespan;
    };
    EXPECT_LE(time(merged.bins), time(concatenate(filled)));
}

TEST(PackBlock, BucketedPadsToAtMostSixteenLengths) {
    std::vector<std::int32_t> lengths;
    for (std::int32_t i = 1; i <= 60; ++i) lengths.push_back(17 * i);
    const std::vector<Round> rounds = equal_rounds(2, 3, lengths);
    PackRules rules = small_rules(2, 2000);
    rules.packing = Packing::bucketed;
    std::set<std::int32_t> padded;
    for (const Microbatch& microbatch : pack_microbatches(rules, rounds)) {
        for (const Segment& segment : microbatch.segments) {
            for (const SampleRef& sample : segment.samples) {
                EXPECT_GE(sample.tokens, 17 * (sample.index + 1));
                padded.insert(sample.tokens);
            }
        }
    }
    EXPECT_EQ(padded.size(), 16U);
    EXPECT_EQ(*padded.rbegin(), 17 * 60);
}

TEST(PackBlock, BucketedLeavesShortSamplesShort) {
    std::vector<std::int32_t> lengths;
    for (std::int32_t i = 1; i <= 60; ++i) lengths.push_back(17 * i);
    PackRules rules = small_rules(2, 2000);
    rules.packing = Packing::bucketed;
    rules.short_length = 500;
    std::set<std::int32_t> padded;
    for (const Microbatch& microbatch : pack_microbatches(rules, equal_rounds(2, 3, lengths))) {
        for (const Segment& segment : microbatch.segments) {
            for (const SampleRef& sample : segment.samples) {
                const std::int32_t length = 17 * (sample.index + 1);
                EXPECT_GE(sample.tokens, length);
                EXPECT_EQ(sample.tokens > 500, length > 500) << length;
                padded.insert(sample.tokens);
            }
        }
    }
    EXPECT_TRUE(padded.contains(500)) << "some would have been padded to more";
}

TEST(PackBlock, BucketedPadsNoGroupAboveTheCapacity) {
    std::vector<std::int32_t> lengths;
    for (std::int32_t i = 1; i < 50; ++i) lengths.insert(lengths.end(), {i, 100 - i});
    for (std::int32_t i = 1; i < 40; ++i) lengths.insert(lengths.end(), {i, i});
    std::vector<Round> rounds = equal_rounds(1, 1, lengths);
    rounds[0][0].group_samples = 2;
    PackRules rules = small_rules(1, 100);
    rules.packing = Packing::bucketed;
    const std::vector<Microbatch> microbatches = pack_microbatches(rules, rounds);
    expect_whole_pairs(rounds, microbatches);
    std::int32_t padded = 0;
    std::int32_t as_they_are = 0;
    for (const Microbatch& microbatch : microbatches) {
        for (const SampleRef& s : microbatch.segments[0].samples) {
            const bool longer = s.tokens > lengths[static_cast<std::size_t>(s.index)];
            ++(longer ? padded : as_they_are);
        }
    }
    EXPECT_GT(padded, 30);
    EXPECT_GT(as_they_are, 60);
}

TEST(PackBlock, AGroupCostsTheSquaresOfItsSamples) {
    std::vector<Round> rounds = equal_rounds(1, 1, {30, 40});
    rounds[0][0].group_samples = 2;
    const BlockItems block = block_items(small_rules(1, 100), rounds);
    ASSERT_EQ(block.items.size(), 1U);
    EXPECT_EQ(block.items[0].tokens, 70);
    EXPECT_EQ(block.items[0].targets, 68);
    EXPECT_EQ(block.items[0].squares, 2500.0);
}

TEST(PackBlock, RefusesGroupsAboveTheCapacityAndPartsOfGroups) {
    std::vector<Round> rounds = equal_rounds(1, 1, {6, 5});
    rounds[0][0].group_samples = 2;
    EXPECT_THROW(pack_microbatches(small_rules(2, 10), rounds), Error);
    EXPECT_EQ(pack_microbatches(small_rules(2, 11), rounds).size(), 1U);
    rounds[0][0].samples.push_back({2, 1, 0});
    EXPECT_THROW(pack_microbatches(small_rules(2, 11), rounds), Error);
}

TEST(PackBlock, NothingToPack) {
    for (const SchedulePolicy policy : policies) {
        PackRules rules = small_rules(3, 10);
        rules.policy = policy;
        EXPECT_TRUE(pack_microbatches(rules, {}).empty());
    }
}

TEST(PackBlock, RefusesSamplesAboveTheCapacity) {
    EXPECT_THROW(pack_microbatches(small_rules(2, 10), equal_rounds(1, 1, {11})), Error);
}

class CheckPacking : public testing::Test {
  protected:
    std::string findings() const { return join(check_packing(10, rounds_, good_), "\n"); }

    std::vector<Round> rounds_ = equal_rounds(2, 2, {4, 3});
    std::vector<Microbatch> good_ = {
        {{{AdapterId{0}, 0, {{0, 4, 3}, {1, 3, 2}}}}},
        {{{AdapterId{1}, 0, {{0, 4, 3}, {1, 3, 2}}}, {AdapterId{0}, 1, {{1, 3, 2}}}}},
        {{{AdapterId{0}, 1, {{0, 4, 3}}}, {AdapterId{1}, 1, {{0, 4, 3}}}}},
        {{{AdapterId{1}, 1, {{1, 3, 2}}}}}};
};

TEST_F(CheckPacking, AcceptsAGoodPacking) {
    EXPECT_EQ(findings(), "");
}
TEST_F(CheckPacking, FindsALostSample) {
    good_.pop_back();
    EXPECT_EQ(findings(), "batch (1, 1) lacks sample 1");
}
TEST_F(CheckPacking, FindsACutGroup) {
    rounds_[0][0].group_samples = 2;
    EXPECT_EQ(findings(), "");
    rounds_[1][0].group_samples = 2;
    EXPECT_EQ(findings(),
              "batch (0, 1) has sample 1 in another microbatch than sample 0 of its group");
}
TEST_F(CheckPacking, FindsADoubledSample) {
    good_.push_back(good_.back());
    EXPECT_NE(findings().find("a second time"), std::string::npos);
}
TEST_F(CheckPacking, FindsAForeignSample) {
    good_[3].segments[0].samples[0].index = 9;
    EXPECT_NE(findings().find("foreign sample 9"), std::string::npos);
}
TEST_F(CheckPacking, FindsAForeignStep) {
    good_[3].segments[0].step = 2;
    EXPECT_NE(findings().find("not of these rounds"), std::string::npos);
}
TEST_F(CheckPacking, FindsTooManyTokens) {
    good_[1].segments[1].samples[0].tokens = 4;
    EXPECT_NE(findings().find("has 11 tokens, more than 10"), std::string::npos);
}
TEST_F(CheckPacking, FindsACutSample) {
    good_[3].segments[0].samples[0].tokens = 2;
    EXPECT_NE(findings().find("cuts sample 1"), std::string::npos);
}
TEST_F(CheckPacking, FindsWrongTargets) {
    good_[3].segments[0].samples[0].targets = 1;
    EXPECT_NE(findings().find("has sample 1 with 1 targets"), std::string::npos);
}
TEST_F(CheckPacking, FindsTwoSegmentsOfAnAdapter) {
    good_[2].segments[1].samples.push_back({1, 3, 2});
    good_.pop_back();
    EXPECT_NE(findings().find("more than 10"), std::string::npos);
    good_[0].segments = {{AdapterId{0}, 0, {{0, 4, 3}}}, {AdapterId{0}, 0, {{1, 3, 2}}}};
    EXPECT_NE(findings().find("two segments of adapter 0"), std::string::npos);
}
TEST_F(CheckPacking, FindsSamplesOutOfOrder) {
    std::swap(good_[0].segments[0].samples[0], good_[0].segments[0].samples[1]);
    EXPECT_NE(findings().find("out of order"), std::string::npos);
}
TEST_F(CheckPacking, FindsAStepBeforeTheOneBefore) {
    std::swap(good_[0], good_[1]);
    EXPECT_NE(findings().find("does not come after step"), std::string::npos);
}
TEST_F(CheckPacking, FindsTwoStepsInOneMicrobatch) {
    good_[0].segments[0].samples.pop_back();
    good_[1].segments = {{AdapterId{0}, 0, {{1, 3, 2}}}, {AdapterId{0}, 1, {{1, 3, 2}}}};
    EXPECT_NE(findings().find("does not come after step 0"), std::string::npos);
}
TEST_F(CheckPacking, FindsEmptyMicrobatchesAndSegments) {
    good_.emplace_back();
    good_[0].segments.push_back({AdapterId{1}, 0, {}});
    EXPECT_NE(findings().find("microbatch 4 is empty"), std::string::npos);
    EXPECT_NE(findings().find("empty segment"), std::string::npos);
}

TEST_F(CheckPacking, RepairSplitsWhatMixesRounds) {
    std::swap(good_[0], good_[1]);
    ASSERT_NE(findings(), "");
    good_ = repair_packing(10, rounds_, good_);
    EXPECT_EQ(findings(), "");
    EXPECT_EQ(good_.size(), 5U);
    EXPECT_EQ(packing_text(repair_packing(10, rounds_, good_)), packing_text(good_));
}

TEST_F(CheckPacking, RepairHandlesAnyOrder) {
    std::vector<Microbatch> order = good_;
    std::vector<int> places{0, 1, 2, 3};
    do {
        good_.clear();
        for (const int p : places) good_.push_back(order[static_cast<std::size_t>(p)]);
        good_ = repair_packing(10, rounds_, good_);
        EXPECT_EQ(findings(), "");
    } while (std::next_permutation(places.begin(), places.end()));
}

}  // namespace loratrain::plan_test
