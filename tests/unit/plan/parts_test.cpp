#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "plan/deploy/partition_layers.h"
#include "plan/pack/batch_source.h"
#include "plan/pack/sample_order.h"
#include "plan/schedule/evaluations.h"
#include "plan/schedule/schedule_stream.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// A layer takes one second forwards and two backwards, the head 3 * `head_layers`.
CostModel costs_with_head(double head_layers) {
    CostModel costs;
    costs.layer_forward.fixed = 1.0;
    costs.layer_backward.fixed = 2.0;
    costs.head.per_token = 3.0 * head_layers;
    return costs;
}
constexpr MicrobatchLoad one_target{2, 4.0, 1};

std::vector<std::int32_t> layer_counts(std::int32_t layers, std::int32_t stages,
                                       double head_layers = 0.0,
                                       Recompute recompute = Recompute::none) {
    std::vector<std::int32_t> counts;
    for (const StagePlan& stage :
         partition_layers(layers, stages, costs_with_head(head_layers), one_target, recompute)) {
        counts.push_back(stage.layer_count);
    }
    return counts;
}

using Counts = std::vector<std::int32_t>;

std::vector<PackItem> items_of(const std::vector<std::int32_t>& tokens, std::int32_t adapter = 0) {
    std::vector<PackItem> items;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        items.push_back({AdapterId{adapter}, 0, {{static_cast<std::int32_t>(i), tokens[i]}}});
    }
    return items;
}

std::vector<std::vector<std::int32_t>> sample_lists(const std::vector<Microbatch>& microbatches) {
    std::vector<std::vector<std::int32_t>> lists;
    for (const Microbatch& microbatch : microbatches) {
        std::vector<std::int32_t>& list = lists.emplace_back();
        for (const Segment& segment : microbatch.segments) {
            for (const SampleRef& sample : segment.samples) list.push_back(sample.index);
        }
    }
    return lists;
}

using Lists = std::vector<std::vector<std::int32_t>>;

}  // namespace

TEST(PartitionLayers, EarlierStagesTakeTheSurplus) {
    EXPECT_EQ(layer_counts(8, 4), (Counts{2, 2, 2, 2}));
    EXPECT_EQ(layer_counts(5, 2), (Counts{3, 2}));
    EXPECT_EQ(layer_counts(7, 3), (Counts{3, 2, 2}));
    EXPECT_EQ(layer_counts(4, 4), (Counts{1, 1, 1, 1}));
    EXPECT_EQ(layer_counts(3, 1), (Counts{3}));
}

TEST(PartitionLayers, TheHeadCounts) {
    EXPECT_EQ(layer_counts(8, 2, 2.0), (Counts{5, 3}));
    EXPECT_EQ(layer_counts(16, 4, 4.0), (Counts{5, 5, 5, 1}));
    EXPECT_EQ(layer_counts(4, 2, 100.0), (Counts{3, 1}));
}

TEST(PartitionLayers, RecomputationMakesTheHeadCheaperInLayers) {
    EXPECT_EQ(layer_counts(10, 2, 6.0), (Counts{8, 2}));
    EXPECT_EQ(layer_counts(10, 2, 6.0, Recompute::layer), (Counts{7, 3}));
}

TEST(PartitionLayers, OnlyTargetsCostTheHeadAnything) {
    const CostModel costs = costs_with_head(4.0);
    const auto parts = partition_layers(8, 2, costs, {100, 10000.0, 0});
    EXPECT_EQ(parts[1].layer_count, 4);
}

TEST(PartitionLayers, StagesAreContiguousAndOptimal) {
    const CostModel costs = costs_with_head(1.5);
    for (std::int32_t layers = 1; layers <= 12; ++layers) {
        for (std::int32_t stages = 1; stages <= layers; ++stages) {
            const auto parts = partition_layers(layers, stages, costs, one_target);
            std::int32_t next = 0;
            double most = 0;
            for (const StagePlan& part : parts) {
                EXPECT_EQ(part.first_layer, next);
                EXPECT_GE(part.layer_count, 1);
                EXPECT_EQ(part.has_embedding, part.rank == 0);
                EXPECT_EQ(part.has_head, part.rank == stages - 1);
                next += part.layer_count;
                most = std::max(most, part.layer_count + (part.has_head ? 1.5 : 0.0));
            }
            EXPECT_EQ(next, layers);
            EXPECT_LT(most, std::max((layers + 1.5) / stages + 1.0, 2.6));
        }
    }
}

TEST(PackMicrobatches, OneSegmentPerAdapter) {
    std::vector<PackItem> items = items_of({4, 4, 4}, 0);
    const std::vector<PackItem> more = items_of({2, 2, 2}, 1);
    items.insert(items.end(), more.begin(), more.end());
    const std::vector<Microbatch> packed = pack_items(items, 10, 2);
    ASSERT_EQ(packed.size(), 2U);
    for (const Microbatch& microbatch : packed) ASSERT_EQ(microbatch.segments.size(), 2U);
    EXPECT_EQ(sample_lists(packed), (Lists{{0, 2, 2}, {1, 0, 1}}));
    EXPECT_EQ(packed[0].segments[0].tokens(), 8);
    EXPECT_EQ(packed[0].segments[1].tokens(), 2);
}

TEST(PackMicrobatches, KeepsGroupsWhole) {
    std::vector<PackItem> items;
    for (std::int32_t i = 0; i < 20; i += 2) {
        items.push_back({AdapterId{i / 10}, 0, {{i, 1 + i % 7}, {i + 1, 9 - i % 5}}});
    }
    for (const std::int64_t at_least : {1, 4, 10}) {
        const std::vector<Microbatch> packed = pack_items(items, 25, at_least);
        std::size_t samples = 0;
        for (const std::vector<std::int32_t>& list : sample_lists(packed)) {
            samples += list.size();
            for (std::size_t i = 0; i < list.size(); i += 2) {
                EXPECT_EQ(list[i] % 2, 0);
                EXPECT_EQ(list.at(i + 1), list[i] + 1);
            }
        }
        EXPECT_EQ(samples, 20U);
        for (const Microbatch& microbatch : packed) EXPECT_LE(microbatch.tokens(), 25);
    }
}

TEST(PackMicrobatches, BalancedGivesEqualTokens) {
    const auto items = items_of({1, 2, 3, 4, 5, 6, 7, 8});
    const std::vector<Microbatch> packed = pack_items(items, 100, 4);
    ASSERT_EQ(packed.size(), 4U);
    for (const Microbatch& microbatch : packed) EXPECT_EQ(microbatch.tokens(), 9);
    EXPECT_EQ(sample_lists(packed)[0], (std::vector<std::int32_t>{0, 7}));
}

TEST(PackMicrobatches, BalancedKeepsTheCapacity) {
    EXPECT_EQ(pack_items(items_of({9, 9, 9}), 10, 2).size(), 3U);
    EXPECT_EQ(pack_items(items_of({1, 1}), 10, 8).size(), 2U);
    EXPECT_EQ(pack_items(items_of({5, 5, 5, 5}), 10, 1).size(), 2U);
    EXPECT_TRUE(pack_items({}, 10, 2).empty());
    const auto uneven = items_of({6, 4, 4, 3, 3});  // first-fit needs 2, longest first fits 10, 10
    for (const Microbatch& microbatch : pack_items(uneven, 10, 2)) {
        EXPECT_LE(microbatch.tokens(), 10);
    }
}

TEST(SampleOrder, IsAPermutationThatDependsOnItsKey) {
    const Counts order = epoch_order(1, "math", 0, 100, true);
    Counts sorted = order;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, epoch_order(1, "math", 0, 100, false));
    EXPECT_EQ(order, epoch_order(1, "math", 0, 100, true));
    EXPECT_NE(order, sorted);
    EXPECT_NE(order, epoch_order(2, "math", 0, 100, true));
    EXPECT_NE(order, epoch_order(1, "code", 0, 100, true));
    EXPECT_NE(order, epoch_order(1, "math", 1, 100, true));
    EXPECT_TRUE(epoch_order(1, "math", 0, 0, true).empty());
}

/// Resume needs the same order for ever: these values may not change.
TEST(SampleOrder, IsFrozen) {
    EXPECT_EQ(epoch_order(42, "math", 0, 8, true), (Counts{2, 1, 0, 4, 7, 5, 3, 6}));
    EXPECT_EQ(epoch_order(42, "math", 1, 8, true), (Counts{0, 7, 5, 2, 3, 4, 1, 6}));
}

TEST(SampleOrder, EveryPositionIsAboutEquallyLikely) {
    std::vector<int> first(8, 0);
    for (std::int32_t epoch = 0; epoch < 4000; ++epoch) {
        ++first[static_cast<std::size_t>(epoch_order(7, "math", epoch, 8, true)[0])];
    }
    for (const int count : first) EXPECT_NEAR(count, 500, 110);
}

TEST(SampleOrder, AdaptersOfOneSeedShareIt) {
    Case test = uniform_case(3, 1, 10, 4, 4);
    test.job.adapters[2].seed = 7;
    const Plan plan = test.plan();
    SampleOrders orders;
    const AdapterPlan& ten = plan.adapters[0];  // its samples
    const DatasetJob& dataset = test.job.datasets[0];
    const auto users = [&](std::uint64_t seed, std::int32_t epoch) {
        return orders.get(seed, DatasetId{0}, dataset, epoch, ten).use_count() - 1;
    };
    std::vector<BatchSource> sources;
    for (const int a : {0, 1, 2}) sources.emplace_back(test.job, plan, AdapterId{a}, orders);
    for (BatchSource& source : sources) source.samples(0);
    EXPECT_EQ(users(test.job.adapters[0].seed, 0), 2);
    EXPECT_EQ(users(7, 0), 1);
    EXPECT_EQ(*orders.get(7, DatasetId{0}, dataset, 0, ten), epoch_order(7, "data", 0, 10, true));
    sources[0].samples(3);
    EXPECT_EQ(users(test.job.adapters[0].seed, 0), 1);
    EXPECT_EQ(users(test.job.adapters[0].seed, 1), 1);
}

TEST(BatchSamples, DoNotCrossEpochs) {
    Case test = uniform_case(1, 1, 10, 4, 4);
    test.job.datasets[0].shuffle = false;
    const Plan plan = test.plan();
    EXPECT_EQ(batch_samples(test.job, plan, AdapterId{0}, 0), (Counts{0, 1, 2, 3}));
    EXPECT_EQ(batch_samples(test.job, plan, AdapterId{0}, 2), (Counts{8, 9}));
    EXPECT_EQ(batch_samples(test.job, plan, AdapterId{0}, 3), (Counts{0, 1, 2, 3}));
}

TEST(RoundsPerBlock, CountOnlyTheAdaptersOfARound) {
    const auto rounds = [](int adapters, std::optional<int> most) {
        Case test = uniform_case(adapters, 2, 20, 10, 8);
        test.job.parallel.microbatch_tokens = 64;
        test.job.schedule.max_adapters = most;
        return rounds_per_block(test.job, test.plan(), test.datasets);
    };
    EXPECT_EQ(rounds(2, {}), 8);
    EXPECT_EQ(rounds(8, {}), 2);
    EXPECT_EQ(rounds(8, 2), 8);
}

}  // namespace loratrain::plan_test
