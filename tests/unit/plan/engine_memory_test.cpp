#include "plan/memory/engine_memory.h"

#include <gtest/gtest.h>

#include "plan/memory/kind_memory.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;

/// Four adapters of rank 16 on an 8-billion-parameter Llama, samples of 512 and one of 2048 tokens,
/// batches of 8.
Case large_case() {
    Case test = uniform_case(4, 1, 16, 512, 8);
    test.model.vocab_size = 128256;
    test.model.hidden_size = 4096;
    test.model.dense().size = 14336;
    test.model.layers = 32;
    test.model.attention().heads = 32;
    test.model.attention().kv_heads = 8;
    test.model.attention().head_dim = 128;
    test.datasets[0].train[5].tokens = 2048;
    for (AdapterJob& adapter : test.job.adapters) adapter.r = 16;
    test.cluster.backend = BackendKind::cuda;
    return test;
}

/// In whole 64 KiB.
std::uint64_t grown(std::uint64_t bytes) {
    return (bytes + 65535) / 65536 * 65536;
}

EngineLayout layout_of(const Case& test) {
    const Plan plan = test.plan();
    return engine_layout(test.job, only_replica(plan), plan.replicas[0].stages[0]);
}

}  // namespace

TEST(EngineMemory, TheCpuTakesNothing) {
    Case test = large_case();
    test.cluster.backend = BackendKind::cpu;
    EXPECT_EQ(layout_of(test).total(), 0U);
}

TEST(EngineMemory, PartsByHand) {
    const Case test = large_case();
    const Plan plan = test.plan();
    ASSERT_EQ(plan.replicas[0].microbatch_tokens, 8192);
    ASSERT_EQ(plan.replicas[0].saved_columns, 64);
    const EngineLayout layout = layout_of(test);
    EXPECT_EQ(layout.gemm_workspace, 32 * mib);
    EXPECT_EQ(layout.table_ring, 12 * mib);
    // gate and up: x with its LoRA columns, both outputs with theirs
    EXPECT_EQ(layout.gemm_timing, grown(8192U * (4096 + 64 + 2 * (14336 + 64)) * 2 + 512));
    // around the activation: dS of gate and up in 56 parts each, 2 x 192 / 56 + 4 tiles of three
    // gradients, 16 ranks, fp32
    EXPECT_EQ(layout.operator_scratch, 16U * 4 * (2 * 56 * 8192 + (6 + 4) * 3 * 14336));
    EXPECT_EQ(layout.attention_rows, 8192U * 32 * 8);
    EXPECT_EQ(layout.attention_tiles, 3U * grown(16 * (8192 / 32 + 8192)));
    EXPECT_EQ(layout.attention_scores, 4U * 528 * 32 * 8192);
    EXPECT_EQ(plan.memory[0].engine, layout.total());
}

TEST(EngineMemory, SweepsOfManyAndOfFewRanks) {
    Case test = large_case();
    const std::uint64_t narrow = layout_of(test).operator_scratch;
    // gate and up: 28 parts of dS for 8192 rows, 3 + 4 tiles of gradients
    const std::uint64_t wide = std::uint64_t{4} * (28 * 8192 + (3 + 4) * 28672);
    test.job.adapters[0].r = 17;
    EXPECT_EQ(layout_of(test).operator_scratch, std::max(narrow, 32 * wide));
    for (AdapterJob& adapter : test.job.adapters) adapter.r = 128;
    EXPECT_EQ(layout_of(test).operator_scratch, 128 * wide);
    // a quarter of the tokens, as many blocks at once
    for (AdapterJob& adapter : test.job.adapters) adapter.r = 8;
    test.job.parallel.microbatch_tokens = 2048;
    EXPECT_EQ(layout_of(test).operator_scratch, 16U * 4 * (2 * 56 * 2048 + (6 + 4) * 3 * 14336));
    // gate and up without down: dS of 256 rows by 2 x 192 blocks, 8 + 4 tiles of gradients
    for (AdapterJob& adapter : test.job.adapters) {
        adapter.targets = {};
        adapter.targets[static_cast<std::size_t>(Linear::gate)] = true;
        adapter.targets[static_cast<std::size_t>(Linear::up)] = true;
    }
    EXPECT_EQ(layout_of(test).operator_scratch, 16U * 4 * (2 * 192 * 256 + (8 + 4) * 28672));
}

/// Some linears may have few ranks though others have many.
TEST(EngineMemory, PatternsOfRanksKeepRoomForFewRanksToo) {
    Case test = large_case();
    const std::uint64_t narrow = layout_of(test).operator_scratch;
    for (AdapterJob& adapter : test.job.adapters) {
        ModuleKeys keys;
        keys.rank_pattern = {{"q_proj", 32}};
        adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
        ASSERT_EQ(adapter.largest_rank(), 32);
        ASSERT_EQ(adapter.rank(0, Linear::down), 16);
    }
    const std::uint64_t wide = std::uint64_t{32} * 4 * (28 * 8192 + (3 + 4) * 28672);
    EXPECT_EQ(layout_of(test).operator_scratch, std::max(narrow, wide));
    EXPECT_GT(narrow, wide);
}

TEST(EngineMemory, GemmsAreTimedWithTheMostRowsAlike) {
    Case test = large_case();
    test.job.parallel.microbatch_tokens = 4200;
    EXPECT_EQ(layout_of(test).gemm_timing, grown(5120U * (4096 + 64 + 2 * (14336 + 64)) * 2 + 512));
    test.job.parallel.microbatch_tokens = 20000;
    EXPECT_EQ(layout_of(test).gemm_timing,
              grown(16384U * (4096 + 64 + 2 * (14336 + 64)) * 2 + 512));
    test.job.parallel.microbatch_tokens = 4200;
    test.model.dense().size = 16;
    const std::int64_t rows = (256 << 20) / (2 * 128256) / 256 * 256;
    EXPECT_EQ(layout_of(test).gemm_timing, grown(rows * (4096 + 128256) * 2 + 512));
}

/// A layer's products of experts at once need tables of tiles and parts of the gradients of the
/// router's weights, and have no inner gradients; one by one it is the other way round.
TEST(EngineMemory, ProductsOfAllExpertsAtOnce) {
    Case test = large_case();
    test.model.descriptions.front().mlp = ExpertSpec{128, 8, 768, true};
    test.model.layers = 2;
    for (AdapterJob& adapter : test.job.adapters) adapter.targets = all_linears();
    const std::uint64_t copies = 8192U * 8;
    const Plan joined = test.plan();
    const auto joins = [](const Plan& plan) {
        return joins_experts(only_replica(plan), *plan.model.experts());
    };
    ASSERT_TRUE(joins(joined));
    EXPECT_GE(layout_of(test).operator_scratch, copies * 3 * 4);
    const auto bytes_of_routes = [](const Plan& plan) {
        return routes_layout(only_replica(plan), *plan.model.experts()).bytes;
    };
    const auto inner_of = [](const Plan& plan) {
        const ReplicaView view = only_replica(plan);
        KindScratch scratch;
        kind_scratch(view, scratch);
        return scratch.experts.inner.bytes();
    };
    EXPECT_EQ(inner_of(joined), 0U);
    const std::uint64_t tables =
        aligned((copies / 128 + 128) * 16) + aligned(2 * 4) + aligned(copies * 4);
    for (const bool odd : {true, false}) {
        Plan plan = joined;
        if (odd) std::get<ExpertSpec>(plan.model.descriptions.front().mlp).size = 764;
        if (!odd) plan.compute = DType::f32;
        EXPECT_FALSE(joins(plan));
        EXPECT_EQ(bytes_of_routes(joined), bytes_of_routes(plan) + tables);
        EXPECT_EQ(inner_of(plan), copies * (odd ? 764U * 2 : 768U * 4));
    }
    Plan quantized = joined;
    quantized.model.quantization = {WeightFormat::nf4, SourceType::bf16};
    EXPECT_TRUE(joins(quantized));
    Plan lora = joined;
    lora.expert_lora = true;
    EXPECT_EQ(inner_of(lora), 0U) << "LoRA is in the products";
}

TEST(EngineMemory, HopperKeepsTheGradientsOfAttentionsScores) {
    Case test = large_case();
    test.cluster.device = "a100";
    EXPECT_EQ(layout_of(test).attention_scores, 0U);
    test.cluster.device = "h200";
    // 4 samples of 2048 tokens: 32 tiles of 64, 32 * 33 / 2 pairs of them, 8 KiB each
    ASSERT_EQ(test.plan().longest_sample, 2048);
    EXPECT_EQ(layout_of(test).attention_scores, 4U * 528 * 32 * 8192);
    // and 1000 tokens, 16 tiles
    test.job.parallel.microbatch_tokens = 5096;
    EXPECT_EQ(layout_of(test).attention_scores, (2U * 528 + 16 * 17 / 2) * 32 * 8192);
    // what is tried for a longer sample than there are tokens is one of as many: 128 tiles
    test.job.parallel.microbatch_tokens = 8192;
    Plan plan = test.plan();
    plan.longest_sample = 163840;
    EXPECT_EQ(
        engine_layout(test.job, only_replica(plan), plan.replicas[0].stages[0]).attention_scores,
        128U * 129 / 2 * 32 * 8192);
    // 24 samples need more than 3 GiB
    test.job.parallel.microbatch_tokens = 49152;
    ASSERT_GT(24ULL * 528 * 32 * 8192, 3072 * mib);
    EXPECT_EQ(layout_of(test).attention_scores, 3072 * mib);
    // 443 tiles, 98346 pairs, are too many for the 4 heads of a key-value head; 442 are not
    test.job.parallel.microbatch_tokens = 30000;
    test.datasets[0].train[5].tokens = 443 * 64;
    EXPECT_EQ(layout_of(test).attention_scores, 0U);
    test.datasets[0].train[5].tokens = 442 * 64;
    EXPECT_EQ(layout_of(test).attention_scores, 3072 * mib);
    for (const std::int64_t none : {64, 100, 136, 256}) {
        test.model.attention().head_dim = none;
        EXPECT_EQ(layout_of(test).attention_scores, 0U) << none;
    }
    test.model.attention().head_dim = 128;
    test.job.model.precision = Precision::fp32;
    EXPECT_EQ(layout_of(test).attention_scores, 0U);
}

TEST(EngineMemory, Fp32HasNoTensorCoreScratch) {
    Case test = large_case();
    test.job.model.precision = Precision::fp32;
    const EngineLayout layout = layout_of(test);
    EXPECT_EQ(layout.attention_scores, 0U);
    EXPECT_EQ(layout.gemm_timing, 0U);
    EXPECT_EQ(layout.operator_scratch, 8192U);
    EXPECT_EQ(layout.gemm_workspace, 32 * mib);
}

TEST(EngineMemory, LanesKeepRoomForTheirSums) {
    // 32 channels of 10 MiB to each of at most 3 peers; with 16 lanes two share a key-value head
    const std::vector<std::pair<std::int32_t, std::uint64_t>> cases{
        {1, 0}, {2, 320}, {4, 960}, {16, 960 + 320}};
    for (const auto& [tensor, megabytes] : cases) {
        Case test = large_case();
        test.cluster.ranks = tensor;
        test.job.parallel.deployment = {{tensor, 1, 1}};
        const EngineLayout layout = layout_of(test);
        EXPECT_EQ(layout.lane_sums, megabytes * mib) << tensor;
        EXPECT_EQ(test.plan().memory[0].engine, layout.total()) << tensor;
        test.cluster.backend = BackendKind::cpu;
        EXPECT_EQ(layout_of(test).lane_sums, 0U) << tensor;
    }
}

TEST(EngineMemory, GrowsWithTheTokens) {
    Case test = large_case();
    std::uint64_t last = 0;
    for (std::int64_t tokens = 2048; tokens < 70000; tokens += 977) {
        test.job.parallel.microbatch_tokens = tokens;
        const std::uint64_t now = layout_of(test).total();
        EXPECT_GE(now, last) << tokens;
        last = now;
    }
}

/// Tensor cores keep factors of lengths and sums of g in fp32, W, U, their inverse and gradients in
/// bf16, for each row; plain arithmetic two rows of fp32 for each of v and q, and states of chunks.
TEST(EngineMemory, GradientsOfDeltaNets) {
    Case test = large_case();
    std::vector<LayerSpec> layers(static_cast<std::size_t>(test.model.layers), test.model.layer(0));
    for (std::size_t l = 0; l < layers.size(); l += 2) {
        layers[l].mixer = DeltaNetSpec{16, 32, 128, 128};
    }
    test.model.set_layers(layers);
    test.cluster.device = "h200";
    const std::uint64_t tokens = 8192;
    EXPECT_EQ(layout_of(test).operator_scratch,
              tokens * (16 * 8 + 32 * (12 + 2 * (128 + 128 + 64 + 64 + 128))));
    const std::uint64_t plain = 4 * (2 * tokens * (4096 + 2048) + 127 * 32 * 128 * 128);
    test.cluster.device = "a100";
    EXPECT_EQ(layout_of(test).operator_scratch, plain);
}

}  // namespace loratrain::plan_test
