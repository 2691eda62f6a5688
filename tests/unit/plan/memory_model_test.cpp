#include "plan/memory/memory_model.h"

#include <gtest/gtest.h>

#include "plan/memory/state_sizes.h"
#include "support/made_up_form.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// Three adapters on two stages of two layers; adapter 0 has the third layer on the first stage.
struct SharedCase {
    SharedCase() : test(uniform_case(3, 2, 20, 10, 8)) {
        test.model = cheap_head_model(4);
        test.job.adapters[1].r = 11;
        test.job.parallel.microbatch_tokens = 64;
        plan = test.plan();
        share_first_layer(plan, 0, 1);
    }
    const StagePlan& stage(std::size_t s) const { return plan.replicas[0].stages[s]; }
    std::uint64_t bytes(int adapter, std::int64_t layers) const {
        return adapter_bytes(test.job.adapter(AdapterId{adapter}), test.model, layers);
    }
    std::uint64_t bytes_on(std::size_t s, int adapter) const {
        return adapter_bytes_on(stage(s), AdapterId{adapter}, test.job, test.model);
    }
    MemoryPlan memory(std::size_t s) const { return stage_memory(test.job, only_replica(plan), s); }

    Case test;
    Plan plan;
};

}  // namespace

TEST(MemoryModel, AnAdapterIsOnOneStageInASharedLayer) {
    const SharedCase shared;
    EXPECT_EQ(shared.bytes_on(0, 0), shared.bytes(0, 3));
    EXPECT_EQ(shared.bytes_on(1, 0), shared.bytes(0, 1));
    for (const int adapter : {1, 2}) {
        EXPECT_EQ(shared.bytes_on(0, adapter), shared.bytes(adapter, 2));
        EXPECT_EQ(shared.bytes_on(1, adapter), shared.bytes(adapter, 2));
    }
}

TEST(MemoryModel, AnAdapterTakesWhatItsFormSays) {
    const ModelSpec model = cheap_head_model(4);
    AdapterJob adapter;
    adapter.r = 8;
    EXPECT_EQ(adapter_parameters(adapter, model, 1), 8192);  // A and B of all linears, each 4096
    EXPECT_EQ(adapter_parameters(adapter, model, 3), 3 * 8192);
    EXPECT_EQ(adapter_bytes(adapter, model, 1), 4U * 4 * 8192);
    adapter.form = test::made_up_form();
    EXPECT_EQ(adapter_parameters(adapter, model, 1), 8704);  // and m, 512
    // s, 8 of each linear, has no gradients and moments; arrays are whole multiples of 256 bytes.
    EXPECT_EQ(adapter_bytes(adapter, model, 1), 35072U + 3U * 34816);
}

TEST(MemoryModel, TheLargestAdapterOfAStage) {
    SharedCase shared;
    const auto largest = [&](std::size_t s) {
        return largest_adapter_bytes(shared.stage(s), shared.test.job, shared.test.model);
    };
    EXPECT_EQ(largest(0), shared.bytes(0, 3));  // 3 x 8 > 2 x 11
    EXPECT_EQ(largest(1), shared.bytes(1, 2));
    shared.test.job.adapters[2].r = 13;
    EXPECT_EQ(largest(0), shared.bytes(2, 2));
}

TEST(MemoryModel, BothStagesHoldASharedLayer) {
    const SharedCase shared;
    SharedCase whole;
    for (StagePlan& stage : whole.plan.replicas[0].stages) {
        stage.first_layer_adapters = {};
        stage.last_layer_adapters = {};
    }
    for (const std::size_t s : {0U, 1U}) {
        EXPECT_EQ(shared.memory(s).weights, whole.memory(s).weights);
        EXPECT_EQ(shared.memory(s).activations, whole.memory(s).activations);
        EXPECT_EQ(shared.memory(s).workspace, whole.memory(s).workspace);
    }
    const MemoryPlan first = shared.memory(0);
    whole.plan.replicas[0].stages[0].layer_count = 2;
    EXPECT_GT(first.weights, whole.memory(0).weights);
    EXPECT_GT(first.activations, whole.memory(0).activations);
}

TEST(MemoryModel, AdaptersOfASharedStage) {
    SharedCase shared;
    EXPECT_EQ(shared.memory(0).adapters,
              shared.bytes(0, 3) + shared.bytes(1, 2) + shared.bytes(2, 2));
    EXPECT_EQ(shared.memory(1).adapters,
              shared.bytes(0, 1) + shared.bytes(1, 2) + shared.bytes(2, 2));
    shared.plan.first_admitted = {AdapterId{2}};
    EXPECT_EQ(shared.memory(0).adapters, shared.bytes(0, 3));
    EXPECT_EQ(shared.memory(1).adapters, shared.bytes(1, 2));
}

TEST(MemoryModel, CopiesForACheckpointFitBesideTheRest) {
    SharedCase shared;
    const std::vector<AdapterId> held{AdapterId{0}, AdapterId{2}};
    const std::uint64_t below = shared.bytes_on(0, 0) + shared.bytes_on(0, 2);
    const std::uint64_t above = shared.bytes_on(1, 0) + shared.bytes_on(1, 2);
    EXPECT_EQ(checkpoint_copies(shared.test.job, shared.plan, held),
              (std::vector<std::uint64_t>{below + above, above}));
    const auto fit = [&](std::uint64_t host) {
        return checkpoint_copies_fit(shared.test.job, shared.plan, held, host);
    };
    shared.plan.bytes_per_rank = 0;
    EXPECT_TRUE(fit(0));
    shared.plan.bytes_per_rank = std::max(shared.plan.memory[0].total() + below + above,
                                          shared.plan.memory[1].total() + above);
    EXPECT_TRUE(fit(0));
    --shared.plan.bytes_per_rank;
    EXPECT_FALSE(fit(0));
    shared.plan.backend = BackendKind::cuda;  // which keeps copies in the host's memory
    EXPECT_TRUE(fit(below + 2 * above));
    EXPECT_FALSE(fit(below + 2 * above - 1));
}

}  // namespace loratrain::plan_test
