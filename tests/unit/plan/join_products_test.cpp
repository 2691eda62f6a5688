#include "plan/deploy/join_products.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "config/model_presets.h"
#include "plan/memory/frozen_layouts.h"
#include "plan/memory/memory_model.h"
#include "plan/text/plan_text.h"
#include "support/problems.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

using test::has;
using Groups = std::vector<std::string>;

/// What pays for a model in microbatches of so many tokens.
Groups paying(const ModelSpec& model, std::int64_t tokens, std::int32_t pads, int lanes = 1) {
    Plan plan;
    plan.model = model;
    ReplicaPlan& replica = plan.replicas.emplace_back();
    replica.tensor = lanes;
    replica.microbatch_tokens = tokens;
    replica.pad_columns = pads;
    ReplicaPlan chosen = replica;
    for (const LinearGroup group : linear_groups) {
        chosen.joined[static_cast<std::size_t>(group)] = joining_pays(only_replica(plan), group);
    }
    return joined_groups(chosen);
}

Groups paying(const char* model, std::int64_t tokens, std::int32_t pads, int lanes = 1) {
    return paying(*model_preset(model), tokens, pads, lanes);
}

/// Four adapters of rank 8 in microbatches of 4096 tokens.
Case tinyllama_case() {
    Case test = uniform_case(4, 1, 64, 512, 8);
    test.cluster.backend = BackendKind::cuda;
    test.cluster.device = "h200";
    test.model = *model_preset("tinyllama-1.1b");
    test.job.parallel.microbatch_tokens = 4096;
    return test;
}

}  // namespace

TEST(JoinProducts, CostIsWavesOfTilesTimesTheInnerDimension) {
    EXPECT_EQ(product_cost(128, 256, 10), 10);
    EXPECT_EQ(product_cost(129, 257, 10), 10);
    EXPECT_EQ(product_cost(128 * 132, 256, 10), 10);
    EXPECT_EQ(product_cost(128 * 132 + 1, 256, 10), 20);
    EXPECT_EQ(product_cost(4096, 2048, 2112), 2 * 2112);  // 32 x 8 tiles
    EXPECT_EQ(product_cost(4096, 256, 2112), 2112);
    EXPECT_EQ(product_cost(4096, 2560, 2240), 3 * 2240);
}

TEST(JoinProducts, WhereTheyFillWavesBetter) {
    EXPECT_EQ(paying("tinyllama-1.1b", 4096, 64), (Groups{"qkv", "gate_up"}));
    EXPECT_EQ(paying("tinyllama-1.1b", 4096, 0), (Groups{"qkv", "gate_up"}));
    EXPECT_EQ(paying("tinyllama-1.1b", 4096, 512), Groups{});  // three times as many columns
    EXPECT_EQ(paying("llama-3.1-8b", 8192, 64), Groups{});
    const ModelSpec mixture = *model_preset("qwen3-30b-a3b");
    ASSERT_TRUE(mixture.attention().qk_norm);
    EXPECT_EQ(paying(mixture, 1024, 16), Groups{});
    ModelSpec normed = *model_preset("tinyllama-1.1b");
    normed.attention().qk_norm = true;
    EXPECT_EQ(paying(normed, 4096, 64), Groups{"gate_up"});
}

/// 8 lanes of 8B have 512, 128 and 128 columns of q, k and v, 1792 each of gate and up.
TEST(JoinProducts, CountsTheColumnsOfALane) {
    const Groups lanes = paying("llama-3.1-8b", 8192, 16, 8);
    const std::int64_t k = 4096;
    const bool qkv = product_cost(8192, 768, k + 48) <=
                     0.97 * static_cast<double>(product_cost(8192, 512, k + 16) +
                                                2 * product_cost(8192, 128, k + 16));
    const bool gate_up = product_cost(8192, 3584, k + 32) <=
                         0.97 * 2.0 * static_cast<double>(product_cost(8192, 1792, k + 16));
    EXPECT_EQ(std::count(lanes.begin(), lanes.end(), "qkv") == 1, qkv);
    EXPECT_EQ(std::count(lanes.begin(), lanes.end(), "gate_up") == 1, gate_up);
    EXPECT_TRUE(qkv);
}

TEST(JoinProducts, OfPlansForGpus) {
    Case test = tinyllama_case();
    const Plan plan = test.plan();
    EXPECT_EQ(joined_groups(plan.replicas[0]), (Groups{"qkv", "gate_up"}));
    EXPECT_EQ(plan_from_text(to_text(plan)).replicas[0].joined, plan.replicas[0].joined);
    EXPECT_TRUE(has(described(test), "; one product of qkv, of gate_up\n")) << described(test);
    const ReplicaView view = only_replica(plan);
    EXPECT_EQ(plan.memory[0].total(), stage_memory(test.job, view, 0).total());
    const std::int64_t r = plan.replicas[0].pad_columns;
    EXPECT_EQ(augmented_shape(view, LinearGroup::qkv).cols, 2048 + 3 * r);
    EXPECT_EQ(augmented_shape(view, LinearGroup::o).cols, 2048 + r);
    EXPECT_EQ(augmented_shape(view, LinearGroup::gate_up).cols, 2048 + 2 * r);

    test.job.model.precision = Precision::fp8;
    EXPECT_EQ(joined_groups(test.plan().replicas[0]), Groups{});
    test.job.model.precision = Precision::automatic;
    test.cluster.backend = BackendKind::cpu;
    EXPECT_EQ(joined_groups(test.plan().replicas[0]), Groups{});
    EXPECT_FALSE(has(to_text(test.plan()), "joined"));
    EXPECT_FALSE(has(described(test), "one product"));
}

/// Sums are in the same order then.
TEST(JoinProducts, ARunThatIsContinuedStaysAsItWas) {
    const Case test = tinyllama_case();
    Plan former = test.plan();
    for (const std::array<bool, linear_group_count> groups :
         {std::array<bool, linear_group_count>{}, {true, false, false, false}}) {
        former.replicas[0].joined = groups;
        const Plan plan = make_plan(test.job, test.model, test.datasets, test.cluster, &former);
        EXPECT_EQ(plan.replicas[0].joined, groups);
    }
    former.backend = BackendKind::cpu;
    const Plan other = make_plan(test.job, test.model, test.datasets, test.cluster, &former);
    EXPECT_EQ(joined_groups(other.replicas[0]), (Groups{"qkv", "gate_up"}));
}

TEST(JoinProducts, OnlyWhereTheLargerPadsFit) {
    Case test = tinyllama_case();
    test.job.parallel.recompute = Recompute::none;
    const std::uint64_t joined = test.plan().memory[0].total();
    test.cluster.bytes_per_rank = joined;
    EXPECT_EQ(joined_groups(test.plan().replicas[0]), (Groups{"qkv", "gate_up"}));
    test.cluster.bytes_per_rank = joined - 1;
    const Plan tight = test.plan();
    EXPECT_EQ(joined_groups(tight.replicas[0]), Groups{});
    EXPECT_LT(tight.memory[0].total(), joined);
}

}  // namespace loratrain::plan_test
