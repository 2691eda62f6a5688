#include "adapter/grad_units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

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

/// Four heads, two of them key-value heads.
ModelSpec model_of_four_heads() {
    ModelSpec model = test::small_model();
    model.vocab_size = 64;
    model.dense().size = 64;
    return model;
}

/// Rows of q, k and v of one linear.
ModelSpec shared_delta_nets() {
    ModelSpec model = model_of_four_heads();
    std::vector<LayerSpec> layers(3, model.layer(0));
    layers[0].mixer = DeltaNetSpec{4, 8, 8, 12};
    model.set_layers(layers);
    return model;
}

/// A model cut in every way together.
Plan unlike_replicas(const ModelSpec& model = model_of_four_heads()) {
    Plan plan;
    plan.model = model;
    for (const auto& [tensor, stages] : {std::pair(1, 3), {4, 1}, {2, 2}, {1, 1}}) {
        plan.replicas.push_back(replica_of(tensor, stages, plan.model.layers));
    }
    number_ranks(plan.replicas);
    return plan;
}

/// Every value of every rank is in one unit.
void expect_every_value_once(const Plan& plan) {
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
            copy.cut.for_each_run(0, unit.count, [&](const TensorCut::Run& run) {
                for (std::int64_t i = 0; i < run.count; ++i) {
                    const std::int64_t place = copy.first + run.in_whole + i;
                    ++seen[copy.rank].at(static_cast<std::size_t>(place));
                }
            });
        }
    }
    for (const auto& [rank, counts] : seen) {
        EXPECT_TRUE(std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; }))
            << "rank " << rank;
        EXPECT_GT(owned[rank], 0) << "rank " << rank;
    }
}

TEST(GradUnits, HoldEveryValueOfEveryRankOnce) {
    ASSERT_EQ(model_of_four_heads().attention().q_size() % 32, 0);
    expect_every_value_once(unlike_replicas());
    expect_every_value_once(unlike_replicas(shared_delta_nets()));
}

/// The values of a unit are in the same places of the whole tensor on all its copies.
TEST(GradUnits, AreOfTheSameRowsOnAllRanks) {
    const Plan plan = unlike_replicas(shared_delta_nets());
    const AdapterJob adapter = test::small_adapter("one", 3);
    // Each rank's gradients hold the numbers of their places in the whole tensors.
    std::map<std::int32_t, std::vector<float>> gradients;
    for (const ReplicaPlan& replica : plan.replicas) {
        for (const StagePlan& stage : replica.stages) {
            for (std::int32_t lane = 0; lane < replica.tensor; ++lane) {
                std::vector<float>& of_rank = gradients[stage.rank + lane];
                const AdapterLayout layout(adapter, plan.model, layers_of(stage, AdapterId{0}),
                                           {lane, replica.tensor});
                for (const PlacedTensor& tensor : layout.tensors(StatePart::gradients)) {
                    std::vector<float> whole(static_cast<std::size_t>(tensor.cut.whole_count()));
                    std::iota(whole.begin(), whole.end(), 0.0F);
                    const std::vector<float> own = cut_out(tensor.cut, whole);
                    of_rank.insert(of_rank.end(), own.begin(), own.end());
                }
            }
        }
    }
    std::size_t most = 0;
    std::map<std::string, std::size_t> of_tensor;
    for (const GradUnit& unit : grad_units(adapter, AdapterId{0}, plan)) {
        most = std::max(most, ++of_tensor[unit.name]);
        const auto values = [&](const UnitCopy& copy) {
            const std::vector<float>& all = gradients[copy.rank];
            const auto first = static_cast<std::size_t>(copy.first);
            const auto count = static_cast<std::size_t>(copy.cut.whole_count());
            return cut_out(copy.cut, std::span(all).subspan(first, count));
        };
        for (const UnitCopy& copy : unit.copies) {
            EXPECT_EQ(values(copy), values(unit.copies.front())) << unit.name;
        }
    }
    EXPECT_EQ(most, 12U);  // of in_proj_qkv: four lanes, three parts
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
