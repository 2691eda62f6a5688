#include "adapter/grad_units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "adapter/adapter_layout.h"
#include "plan/deploy/partition_layers.h"
#include "plan/place.h"
#include "unit/model/small_stage.h"

namespace loratrain {
namespace {

ReplicaPlan replica_of(std::int32_t tensor, std::int32_t stages, std::int64_t layers) {
    ReplicaPlan replica;
    replica.tensor = tensor;
    replica.stages =
        partition_layers(static_cast<std::int32_t>(layers), stages, CostModel{}, MicrobatchLoad{});
    return replica;
}

/// A model of four heads, two of them key-value heads, cut in every way together.
Plan unlike_replicas() {
    Plan plan;
    plan.model = test::small_model();
    plan.model.layers = 3;
    plan.model.attention().heads = 4;
    plan.model.attention().kv_heads = 2;
    plan.model.vocab_size = 64;
    plan.model.dense().size = 64;
    for (const auto& [tensor, stages] : {std::pair(1, 3), {4, 1}, {2, 2}, {1, 1}}) {
        plan.replicas.push_back(replica_of(tensor, stages, plan.model.layers));
    }
    number_ranks(plan.replicas);
    return plan;
}

/// Every value of every rank is in one unit, and the values of a unit are in the same places of the
/// whole tensor on all its copies.
TEST(GradUnits, HoldEveryValueOfEveryRankOnce) {
    const Plan plan = unlike_replicas();
    ASSERT_EQ(plan.model.attention().q_size() % 32, 0);
    const AdapterJob adapter = test::small_adapter("one", 3);
    const std::vector<GradUnit> units = grad_units(adapter, AdapterId{0}, plan);
    std::map<std::int32_t, std::vector<int>> seen;
    std::map<std::int32_t, int> owned;
    for (const ReplicaPlan& replica : plan.replicas) {
        for (const StagePlan& stage : replica.stages) {
            for (std::int32_t lane = 0; lane < replica.tensor; ++lane) {
                const AdapterLayout layout(adapter, plan.model, layers_of(stage, AdapterId{0}),
                                           {lane, replica.tensor});
                seen[stage.rank + lane].resize(
                    static_cast<std::size_t>(layout.count(StatePart::gradients)));
            }
        }
    }
    for (const GradUnit& unit : units) {
        EXPECT_GE(unit.copies.size(), plan.replicas.size()) << unit.name;
        EXPECT_TRUE(
            std::is_sorted(unit.copies.begin(), unit.copies.end(),
                           [](const UnitCopy& a, const UnitCopy& b) { return a.rank < b.rank; }));
        ++owned[unit.owner];
        for (const UnitCopy& copy : unit.copies) {
            ASSERT_EQ(copy.cut.count(), unit.count);
            for (std::int64_t i = 0; i < unit.count; ++i) {
                const std::int64_t place = copy.first + copy.cut.whole_index(i);
                ++seen[copy.rank].at(static_cast<std::size_t>(place));
            }
        }
    }
    for (const auto& [rank, counts] : seen) {
        EXPECT_TRUE(std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; }))
            << "rank " << rank;
        EXPECT_GT(owned[rank], 0) << "rank " << rank;
    }
}

/// What is added up by whom, in which order, does not depend on where replicas are.
TEST(GradUnits, AreTheSameWhereverReplicasAre) {
    const Plan plan = unlike_replicas();
    Plan moved = plan;
    const std::vector<std::int32_t> hosts{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    number_ranks(moved.replicas, std::span(hosts).first(12));
    const std::vector<std::int32_t> ranks = ranks_in_order(plan);
    const std::vector<std::int32_t> moved_ranks = ranks_in_order(moved);
    ASSERT_NE(moved_ranks, ranks);
    const auto now = [&](std::int32_t rank) { return moved_ranks[static_cast<std::size_t>(rank)]; };
    const AdapterJob adapter = test::small_adapter("one", 3);
    const std::vector<GradUnit> before = grad_units(adapter, AdapterId{0}, plan);
    const std::vector<GradUnit> after = grad_units(adapter, AdapterId{0}, moved);
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t u = 0; u < before.size(); ++u) {
        EXPECT_EQ(after[u].name, before[u].name);
        EXPECT_EQ(after[u].owner, now(before[u].owner));
        ASSERT_EQ(after[u].copies.size(), before[u].copies.size());
        for (std::size_t h = 0; h < before[u].copies.size(); ++h) {
            EXPECT_EQ(after[u].copies[h].rank, now(before[u].copies[h].rank));
            EXPECT_EQ(after[u].copies[h].first, before[u].copies[h].first);
        }
    }
}

TEST(GradUnits, AreWholeTensorsWhereNobodyCutsThem) {
    Plan plan = unlike_replicas();
    std::erase_if(plan.replicas, [](const ReplicaPlan& replica) { return replica.tensor > 1; });
    const AdapterJob adapter = test::small_adapter("one", 3);
    const AdapterLayout layout(adapter, plan.model, {0, 3});
    const std::vector<GradUnit> units = grad_units(adapter, AdapterId{0}, plan);
    EXPECT_EQ(units.size(), layout.tensors(StatePart::gradients).size());
    for (const GradUnit& unit : units) EXPECT_EQ(unit.copies.size(), 2U);
}

}  // namespace
}  // namespace loratrain
