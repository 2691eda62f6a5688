#include "plan/cost/cost_model.h"
#include "plan/cost/built_in_costs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/model_presets.h"

namespace loratrain {
namespace {

AdapterLoads three_adapters() {
    AdapterLoads loads;
    loads.add(AdapterId{0}, {10, 100.0, 1});
    loads.add(AdapterId{1}, {20, 400.0, 2});
    loads.add(AdapterId{2}, {30, 900.0, 3});
    return loads;
}

/// Four layers; the first one computes adapters 2 and up, the last one adapter 0.
StagePlan shared_stage() {
    StagePlan stage;
    stage.first_layer = 4;
    stage.layer_count = 4;
    stage.first_layer_adapters = {2};
    stage.last_layer_adapters = {0, 1};
    return stage;
}

CostModel some_costs() {
    CostModel costs;
    costs.layer_forward = {1.0, 0.1, 0.01};
    costs.layer_backward = {2.0, 0.0, 0.02};
    costs.head = {5.0, 0.5, 0.0};
    return costs;
}

void expect_load(const MicrobatchLoad& load, std::int64_t tokens, double squares,
                 std::int64_t targets) {
    EXPECT_EQ(load.tokens, tokens);
    EXPECT_EQ(load.squares, squares);
    EXPECT_EQ(load.targets, targets);
}

constexpr double all_forward = 1.0 + 6.0 + 14.0;
constexpr double all_backward = 2.0 + 28.0;
constexpr double shared_forward = (1.0 + 3.0 + 9.0) + (1.0 + 1.0 + 1.0);
constexpr double shared_backward = (2.0 + 18.0) + (2.0 + 2.0);

}  // namespace

TEST(AdapterLoads, AddsUpWhatIsOfOneAdapter) {
    AdapterLoads loads = three_adapters();
    loads.add(AdapterId{1}, {5, 25.0, 4});
    ASSERT_EQ(loads.parts.size(), 3U);
    EXPECT_EQ(loads.parts[1].adapter, AdapterId{1});
    expect_load(loads.parts[1].load, 25, 425.0, 6);
    expect_load(loads.parts[2].load, 30, 900.0, 3);
    expect_load(loads.total, 65, 1425.0, 10);
}

TEST(AdapterLoads, OfASpan) {
    const AdapterLoads loads = three_adapters();
    expect_load(loads.of({}), 60, 1400.0, 6);
    expect_load(loads.of({1}), 50, 1300.0, 5);
    expect_load(loads.of({0, 2}), 30, 500.0, 3);
    expect_load(loads.of({1, 2}), 20, 400.0, 2);
    expect_load(loads.of({3}), 0, 0.0, 0);
}

TEST(AdapterLoads, OfAMicrobatch) {
    const AdapterLoads loads =
        loads_of({{{AdapterId{1}, 0, {{3, 7, 2}, {0, 10, 9}}}, {AdapterId{4}, 0, {{1, 10, 9}}}}},
                 AttentionSpan());
    ASSERT_EQ(loads.parts.size(), 2U);
    EXPECT_EQ(loads.parts[0].adapter, AdapterId{1});
    EXPECT_EQ(loads.parts[1].adapter, AdapterId{4});
    expect_load(loads.parts[0].load, 17, 149.0, 11);
    expect_load(loads.parts[1].load, 10, 100.0, 9);
    expect_load(loads.total, 27, 249.0, 20);
}

TEST(StageSeconds, TheFirstLayerSavesTheGradientOfItsInput) {
    CostModel costs = some_costs();
    costs.layer_backward.per_token = 0.5;
    CostModel saving = costs;
    saving.first_layer_saving = 0.2;
    StagePlan stage = shared_stage();
    for (const Recompute recompute : {Recompute::none, Recompute::layer}) {
        const auto saved = [&] {
            return backward_seconds(costs, stage, three_adapters(), recompute) -
                   backward_seconds(saving, stage, three_adapters(), recompute);
        };
        stage.has_embedding = true;
        EXPECT_NEAR(saved(), 0.2 * 0.5 * 60, 1e-12);
        stage.has_embedding = false;
        EXPECT_EQ(saved(), 0.0);
    }
}

TEST(StageSeconds, KeptLayersAreNotComputedAgain) {
    const CostModel costs = some_costs();
    StagePlan stage;
    stage.layer_count = 4;
    const AdapterLoads loads = three_adapters();
    const double none = backward_seconds(costs, stage, loads, Recompute::none);
    const double forward = layers_seconds(costs.layer_forward, stage, loads);
    for (const std::int32_t kept : {0, 1, 3, 4, 5}) {
        stage.kept_layers = kept;
        EXPECT_EQ(backward_seconds(costs, stage, loads, Recompute::none), none);
        EXPECT_NEAR(backward_seconds(costs, stage, loads, Recompute::layer),
                    none + forward * std::max(0, 4 - kept) / 4, 1e-9 * none);
    }
}

TEST(StageSeconds, SharedLayersTakeTheirAdaptersAlone) {
    const CostModel costs = some_costs();
    const StagePlan stage = shared_stage();
    const AdapterLoads loads = three_adapters();
    const double forward = 2 * all_forward + shared_forward;
    const double backward = 2 * all_backward + shared_backward;
    EXPECT_DOUBLE_EQ(layers_seconds(costs.layer_forward, stage, loads), forward);
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), forward);
    EXPECT_DOUBLE_EQ(backward_seconds(costs, stage, loads, Recompute::none), backward);
    EXPECT_DOUBLE_EQ(backward_seconds(costs, stage, loads, Recompute::layer), backward + forward);
    EXPECT_DOUBLE_EQ(stage_seconds(costs, stage, loads, Recompute::none), forward + backward);
    EXPECT_DOUBLE_EQ(stage_seconds(costs, stage, loads, Recompute::layer), 2 * forward + backward);
}

TEST(StageSeconds, TheHeadTakesEveryTarget) {
    const CostModel costs = some_costs();
    StagePlan stage = shared_stage();
    stage.has_head = true;
    const AdapterLoads loads = three_adapters();
    const double forward = 2 * all_forward + shared_forward + 5.0 + 3.0;
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), forward);
    EXPECT_DOUBLE_EQ(backward_seconds(costs, stage, loads, Recompute::none),
                     2 * all_backward + shared_backward);
}

TEST(StageSeconds, SegmentsCountWhereTheyHaveRows) {
    const CostLine layer{1.0, 0.1, 0.0, 100.0};
    StagePlan whole;
    whole.layer_count = 2;
    EXPECT_DOUBLE_EQ(layers_seconds(layer, whole, three_adapters()), 2 * (1.0 + 6.0 + 300.0));
    EXPECT_DOUBLE_EQ(layers_seconds(layer, whole, three_adapters().total), 2 * (1.0 + 6.0 + 100.0));
    const double shared = (1.0 + 3.0 + 100.0) + (1.0 + 1.0 + 100.0);
    EXPECT_DOUBLE_EQ(layers_seconds(layer, shared_stage(), three_adapters()),
                     2 * (1.0 + 6.0 + 300.0) + shared);
}

TEST(StageSeconds, NoRowsInASharedLayerTakeNoTime) {
    const CostModel costs = some_costs();
    const StagePlan stage = shared_stage();
    AdapterLoads loads;
    loads.add(AdapterId{1}, {20, 400.0, 2});
    const double forward = 2 * (1.0 + 2.0 + 4.0);
    const double backward = 2 * (2.0 + 8.0);
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), forward);
    EXPECT_DOUBLE_EQ(backward_seconds(costs, stage, loads, Recompute::none), backward);
    EXPECT_DOUBLE_EQ(backward_seconds(costs, stage, loads, Recompute::layer), backward + forward);
    loads.add(AdapterId{7}, {10, 100.0, 1});
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), 2 * (1.0 + 3.0 + 5.0) + 3.0);
}

TEST(StageSeconds, WholeLayersNeedNoParts) {
    const CostModel costs = some_costs();
    StagePlan stage;
    stage.layer_count = 4;
    const AdapterLoads loads = three_adapters();
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), 4 * all_forward);
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads.total), 4 * all_forward);
}

TEST(StageSeconds, TheHostHoldsUpBothPassesInProportion) {
    CostModel costs = some_costs();
    StagePlan stage;
    stage.layer_count = 4;
    stage.has_head = true;
    const AdapterLoads loads = three_adapters();
    const double forward = forward_seconds(costs, stage, loads);
    const double backward = backward_seconds(costs, stage, loads, Recompute::none);
    costs.host = {{10.0, 1.0}, {20.0, 2.0}, {3.0, 0.5}, {4.0, 0.25}, 7.0, {}, {}};
    const double host = 4 * (13.0 + 26.0) + 4.5 + 4.75 + 7.0;
    EXPECT_DOUBLE_EQ(host_seconds(costs.host, stage, loads), host);
    ASSERT_LT(host, forward + backward);
    EXPECT_FALSE(is_held_up(costs, stage, loads));
    EXPECT_EQ(forward_seconds(costs, stage, loads), forward);
    EXPECT_EQ(backward_seconds(costs, stage, loads, Recompute::none), backward);
    costs.host = scaled(costs.host, 3.0);
    EXPECT_TRUE(is_held_up(costs, stage, loads));
    const double now = forward_seconds(costs, stage, loads);
    EXPECT_DOUBLE_EQ(now / forward, 3.0 * host / (forward + backward));
    EXPECT_DOUBLE_EQ(stage_seconds(costs, stage, loads, Recompute::none), 3.0 * host);
}

TEST(StageSeconds, SegmentsAreThoseOfAdapters) {
    const HostCosts host{{}, {}, {1.0, 10.0}, {}, 0.0, {}, {}};
    EXPECT_EQ(host_seconds(host, {}, three_adapters()), 31.0);
    EXPECT_EQ(host_seconds(host, {}, three_adapters().total), 11.0);
}

TEST(BuiltInCosts, HostsHoldUpSmallModelsAlone) {
    AdapterLoads loads;
    for (int a = 0; a < 8; ++a) loads.add(static_cast<AdapterId>(a), {64, 4096.0, 64});
    for (const char* device : {"h200", "a100", "cpu"}) {
        for (const char* preset : {"llama-3.1-8b", "qwen2.5-14b"}) {
            const auto model = model_preset(preset);
            ASSERT_TRUE(model) << preset;
            CostModel costs = built_in_costs(*model, DType::bf16, device);
            StagePlan stage{0, 0, 8, true, false};
            EXPECT_FALSE(is_held_up(costs, stage, loads)) << device << ' ' << preset;
        }
    }
    ModelSpec small = *model_preset("llama-3.1-8b");
    small.hidden_size = small.dense().size = 576;
    small.attention().heads = 9;
    small.attention().kv_heads = 3;
    small.attention().head_dim = 64;
    const StagePlan stage{0, 0, 30, true, false};
    EXPECT_TRUE(is_held_up(built_in_costs(small, DType::bf16, "h200"), stage, loads));
    EXPECT_FALSE(is_held_up(built_in_costs(small, DType::f32, "cpu"), stage, loads));
}

TEST(StageSeconds, TheSlowestOfSeveral) {
    const CostModel costs = some_costs();
    const AdapterLoads loads = three_adapters();
    StagePlan small;
    small.layer_count = 1;
    const double shared = 2 * (all_forward + all_backward) + shared_forward + shared_backward;
    EXPECT_DOUBLE_EQ(slowest_seconds(costs, {small, shared_stage(), small}, loads, Recompute::none),
                     shared);
    small.layer_count = 4;
    EXPECT_DOUBLE_EQ(slowest_seconds(costs, {shared_stage(), small}, loads, Recompute::none),
                     4 * (all_forward + all_backward));
}

TEST(BuiltInCosts, QuantisedExpertsAreWidenedForEachMicrobatch) {
    const CostModel dense = built_in_costs(*model_preset("qwen3-30b-a3b"), DType::bf16, "h200");
    const ModelSpec nf4 = *model_preset("qwen3-30b-a3b-nf4");
    const CostModel quantized = built_in_costs(nf4, DType::bf16, "h200");
    const double bytes = 128.0 * 3 * 768 * 2048 * 2.5;
    for (const auto line : {&CostModel::layer_forward, &CostModel::layer_backward}) {
        EXPECT_EQ((quantized.*line).per_token, (dense.*line).per_token);
        EXPECT_NEAR((quantized.*line).fixed - (dense.*line).fixed, bytes / 3.6e12, 1e-9);
    }
    EXPECT_EQ(
        built_in_costs(nf4, DType::f32, "cpu").layer_forward.fixed,
        built_in_costs(*model_preset("qwen3-30b-a3b"), DType::f32, "cpu").layer_forward.fixed);
}

TEST(BuiltInCosts, CodesOfExpertsAreNotWidenedForFp8Products) {
    const auto fixed = [](const char* preset) {
        return built_in_costs(*model_preset(preset), DType::bf16, "h200", 1, true)
            .layer_forward.fixed;
    };
    EXPECT_EQ(fixed("qwen3-30b-a3b-fp8"), fixed("qwen3-30b-a3b"));
}

TEST(BuiltInCosts, ExpertsTakePassesOverTheirRows) {
    const ModelSpec model = *model_preset("qwen3-30b-a3b");
    Job job;
    job.adapters.resize(2);
    const auto seconds = [&](const ModelSpec& of, std::string_view device) {
        const CostModel plain = built_in_costs(of, DType::bf16, device);
        CostModel costs = plain;
        add_experts(job, of, device, costs);
        EXPECT_EQ(costs.layer_forward.fixed, plain.layer_forward.fixed);
        return costs.layer_forward.per_token + costs.layer_backward.per_token -
               plain.layer_forward.per_token - plain.layer_backward.per_token;
    };
    // 8 experts of a token, 2 bytes, 4.8 TB/s.
    const double attention = 8.0 * 2.0 * (10 * 768 + 4 * 2048) / (0.28 * 4.8e12);
    EXPECT_NEAR(seconds(model, "h200"), attention, 1e-12);
    job.adapters[1].targets.fill(false);
    job.adapters[1].targets[static_cast<std::size_t>(Linear::down)] = true;
    const double in_experts = 8.0 * 2.0 * (17 * 768 + 8 * 2048) / (0.28 * 4.8e12);
    EXPECT_NEAR(seconds(model, "h200"), in_experts, 1e-12);
    EXPECT_NEAR(seconds(model, "cpu"), 0.0, 1e-15);
    EXPECT_NEAR(seconds(*model_preset("llama-3.1-8b"), "h200"), 0.0, 1e-15);
}

TEST(BuiltInCosts, HeadsThatTensorCoresDoNotTakeArePlain) {
    const ModelSpec usual = *model_preset("llama-3.1-8b");
    const auto slowdown = [&](std::int64_t head_dim, DType compute, std::string_view device) {
        ModelSpec other = usual;
        other.attention().head_dim = head_dim;
        other.attention().heads = 4096 / head_dim;
        return built_in_costs(other, compute, device).layer_backward.per_square /
               built_in_costs(usual, compute, device).layer_backward.per_square;
    };
    EXPECT_NEAR(slowdown(4, DType::bf16, "h200"), 100.0, 1e-6);
    EXPECT_NEAR(slowdown(4, DType::f32, "h200"), 1.0, 1e-6);
    EXPECT_NEAR(slowdown(4, DType::f32, "cpu"), 1.0, 1e-6);
    for (const std::int64_t head_dim : {64, 256}) {
        EXPECT_NEAR(slowdown(head_dim, DType::bf16, "h200"), 1.0, 1e-6) << head_dim;
    }
}

TEST(BuiltInCosts, DoraTakesMoreProducts) {
    ModelSpec model = *model_preset("llama-3.1-8b");
    Job job;
    job.adapters.resize(2);
    const CostModel plain = built_in_costs(model, DType::bf16, "h200");
    const auto costs = [&] {
        CostModel result = plain;
        add_dora(job, model, result);
        return result;
    };
    EXPECT_EQ(costs().layer_backward.per_token, plain.layer_backward.per_token);
    job.adapters[0].use_dora = true;
    EXPECT_EQ(costs().layer_backward.per_token, plain.layer_backward.per_token) << "are kept";
    model.attention().o_bias = true;
    constexpr double share = 16.78 / 218.1;  // of o, in millions of weights
    EXPECT_EQ(costs().layer_forward.per_token, plain.layer_forward.per_token);
    EXPECT_NEAR((costs().layer_backward.per_token - plain.layer_backward.per_token) /
                    plain.layer_forward.per_token,
                share / 2, 1e-3);
    job.adapters[0].lora_dropout = 0.1;
    EXPECT_NEAR(costs().layer_forward.per_token / plain.layer_forward.per_token, 1.5, 1e-9);
    job.adapters[0].targets.fill(false);
    EXPECT_EQ(costs().layer_forward.per_token, plain.layer_forward.per_token);
}

TEST(AttentionSpan, SquaresWithoutWindows) {
    ModelSpec model;
    model.layers = 3;
    EXPECT_EQ(AttentionSpan(model).squares(70001), 70001.0 * 70001.0);
    model.attention().rope.reset();
    EXPECT_EQ(AttentionSpan(model).squares(70001), 70001.0 * 70001.0);
}

TEST(AttentionSpan, OfLayersWithAttentionAlone) {
    ModelSpec model;
    std::vector<LayerSpec> layers(4);
    for (std::size_t i = 0; i < 3; ++i) layers[i].mixer = DeltaNetSpec{2, 4, 8, 8};
    model.set_layers(layers);
    EXPECT_EQ(AttentionSpan(model).squares(1000), 250000.0);
}

TEST(AttentionSpan, TwiceThePairsThatSeeEachOther) {
    ModelSpec model;
    std::vector<LayerSpec> layers(4);
    for (std::size_t i = 1; i < 4; ++i) layers[i].attention().sliding_window = 100;
    model.set_layers(layers);
    const AttentionSpan span(model);
    EXPECT_EQ(span.squares(60), 3600.0);
    double pairs = 0.0;
    for (int query = 0; query < 1000; ++query) {
        pairs += 0.25 * (query + 1) + 0.75 * std::min(query + 1, 100);
    }
    EXPECT_NEAR(span.squares(1000), 2.0 * pairs, 0.01 * pairs);
}

TEST(CostModel, LayersThatStreamComeBesideComputation) {
    StagePlan stage;
    stage.layer_count = 8;
    stage.resident_layers = 0;
    CostModel costs = some_costs();
    const AdapterLoads loads = three_adapters();
    const auto expect = [&](double forward, double backward, double hidden) {
        EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), forward);
        EXPECT_DOUBLE_EQ(backward_seconds(costs, stage, loads, Recompute::none), backward);
        EXPECT_DOUBLE_EQ(hidden_share(costs, stage, loads, Recompute::none), hidden);
    };
    costs.layer_transfer = 10.0;
    expect(8 * all_forward, 8 * all_backward, 1.0);
    // Through three buffers five come in turn, beside two layers fewer than there are.
    costs.layer_transfer = 40.0;
    expect(2 * all_forward + 200.0, 2 * all_backward + 200.0, 1.0 - (74.0 + 20.0) / 400.0);
    stage.resident_layers = 4;
    expect(8 * all_forward, 8 * all_backward, 1.0);
    costs.layer_transfer = 1000.0;
    expect(2 * all_forward + 1000.0, 2 * all_backward + 1000.0, 1.0 - (874.0 + 820.0) / 2000.0);
    stage.resident_layers = 5;  // all of the others have a buffer
    expect(8 * all_forward, 8 * all_backward, 1.0);
}

TEST(CostModel, TransfersTakeOfTheMemorysRate) {
    StagePlan stage;
    stage.layer_count = 8;
    stage.resident_layers = 0;
    CostModel costs = some_costs();
    costs.layer_transfer = 10.0;
    costs.layer_traffic = 2.0;
    const AdapterLoads loads = three_adapters();
    // Five in turn, in either pass; what they take is not as if they were not hidden.
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), 8 * all_forward + 10.0);
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads, true), 8 * all_forward + 10.0);
    EXPECT_DOUBLE_EQ(backward_seconds(costs, stage, loads, Recompute::none),
                     8 * all_backward + 10.0);
    EXPECT_DOUBLE_EQ(hidden_share(costs, stage, loads, Recompute::none), 1.0);
    // A pass that waits for transfers is longer for what computes at its ends alone.
    costs.layer_transfer = 1000.0;
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), (8 * all_forward + 10.0) / 4 + 5000.0);
    // Links that are awake make all of it longer, but not where no layer comes in turn.
    costs.layer_transfer = 10.0;
    costs.link_power = 0.25;
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), 1.25 * 8 * all_forward + 10.0);
    EXPECT_DOUBLE_EQ(backward_seconds(costs, stage, loads, Recompute::none),
                     1.25 * 8 * all_backward + 10.0);
    EXPECT_DOUBLE_EQ(hidden_share(costs, stage, loads, Recompute::none), 1.0);
    stage.resident_layers = 5;
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), 8 * all_forward);
    stage.resident_layers = all_layers;
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), 8 * all_forward);
}

TEST(CostModel, AMicrobatchWhoseTransfersHideIsAsMuchLongerAsWasMeasured) {
    // RESULTS.md: 8B, microbatches of 16384 on an H100, resident and with all layers streaming.
    Job job;
    job.model.residency.kind = Residency::Kind::stream;
    Plan plan;
    plan.model = *model_preset("llama-3.1-8b");
    plan.weights = WeightFormat::bf16;
    StagePlan stage;
    stage.layer_count = 32;
    AdapterLoads loads;
    loads.add(AdapterId{0}, {16384, 8 * 2048.0 * 2048.0, 16384});
    CostModel costs = built_in_costs(plan.model, DType::bf16, "h100");
    const double resident = stage_seconds(costs, stage, loads, Recompute::none);
    add_transfers(job, plan, "h100", 1, costs);
    stage.resident_layers = 0;
    EXPECT_NEAR(stage_seconds(costs, stage, loads, Recompute::none) - resident, 7.5e-3, 0.3e-3);
    EXPECT_DOUBLE_EQ(hidden_share(costs, stage, loads, Recompute::none), 1.0);
}

TEST(CostModel, ActivationsGoToTheHostBesideComputation) {
    StagePlan stage;
    stage.layer_count = 8;
    stage.kept_layers = 2;
    stage.offloaded_layers = 5;
    CostModel costs = some_costs();
    const AdapterLoads loads = three_adapters();
    const auto tokens = static_cast<double>(loads.total.tokens);
    const auto expect = [&](double forward, double backward, double hidden) {
        EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), forward);
        EXPECT_DOUBLE_EQ(backward_seconds(costs, stage, loads, Recompute::layer), backward);
        EXPECT_DOUBLE_EQ(hidden_offload_share(costs, stage, loads, Recompute::layer), hidden);
    };
    const double back = 8 * all_backward + all_forward;  // one layer is recomputed
    expect(8 * all_forward, back, 1.0);
    costs.offload_per_token = 1.0 / tokens;
    expect(8 * all_forward, back, 1.0);
    // Of two buffers' layers nothing goes; three do, beside two layers fewer than there are.
    costs.offload_per_token = 1000.0 / tokens;
    const double slow = 0.25 * back + 3000.0;
    expect(2 * all_forward + 3000.0, slow, 1.0 - (3000.0 - 6 * all_forward + slow - back) / 6000.0);
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads, true), 8 * all_forward);  // none goes
    stage.offloaded_layers = 20;  // six that are not kept
    EXPECT_DOUBLE_EQ(forward_seconds(costs, stage, loads), 2 * all_forward + 4000.0);
    EXPECT_DOUBLE_EQ(backward_seconds(costs, stage, loads, Recompute::none), 8 * all_backward);
    stage.offloaded_layers = 2;
    expect(8 * all_forward, 8 * all_backward + 4 * all_forward, 1.0);
}

TEST(CostModel, LinksThatAreNotKnownTakeNothing) {
    for (const auto& [device, seconds] :
         {std::pair{"h200", 1e-6}, {"a100", 50e3 / 24e9}, {"cpu", 0.0}, {"b900", 0.0}}) {
        CostModel costs;
        add_offload(50e3, device, costs);
        EXPECT_DOUBLE_EQ(costs.offload_per_token, seconds) << device;
    }
}

TEST(CostModel, TransfersAreOfJobsWhoseLayersMayStream) {
    Job job;
    Plan plan;
    plan.model = *model_preset("llama-3-70b");
    plan.weights = WeightFormat::bf16;
    CostModel costs;
    add_transfers(job, plan, "h200", 1, costs);
    EXPECT_EQ(costs.layer_transfer, 0.0);
    job.model.residency.kind = Residency::Kind::stream;
    add_transfers(job, plan, "h200", 1, costs);
    const double of_bf16 = costs.layer_transfer;
    const double bytes = 2.0 * (8192.0 * (8192 + 2 * 1024 + 8192) + 3.0 * 8192 * 28672);
    EXPECT_NEAR(of_bf16, bytes / 50e9, 1e-4);
    EXPECT_NEAR(costs.layer_traffic, bytes / 4.8e12, 1e-6);
    add_transfers(job, plan, "h200", 2, costs);
    EXPECT_NEAR(costs.layer_transfer, of_bf16 / 2, 1e-4);
    job.model.residency = {Residency::Kind::shared, 0, 2};
    add_transfers(job, plan, "h200", 1, costs);
    EXPECT_NEAR(costs.layer_transfer, bytes / 300e9, 1e-4);
    EXPECT_NEAR(costs.layer_traffic, 0.5 * bytes / 4.8e12, 1e-6);
    EXPECT_EQ(costs.link_power, 0.022);
    CostModel measured;
    take_unmeasured(costs, measured);
    EXPECT_EQ(measured.layer_traffic, costs.layer_traffic);
    EXPECT_EQ(measured.link_power, costs.link_power);
    EXPECT_EQ(measured.layer_transfer, 0.0);
    CostModel of_processor;
    add_transfers(job, plan, "cpu", 1, of_processor);
    EXPECT_GT(of_processor.layer_transfer, 0.0);
    EXPECT_EQ(of_processor.layer_traffic, 0.0);
    EXPECT_EQ(of_processor.link_power, 0.0);
    job.model.residency.sharers = 1;
    costs.layer_transfer = 0.0;
    add_transfers(job, plan, "h200", 1, costs);
    EXPECT_EQ(costs.layer_transfer, 0.0);
    job.model.residency.kind = Residency::Kind::stream;
    plan.model.quantization = {WeightFormat::nf4, SourceType::bf16};
    add_transfers(job, plan, "h200", 1, costs);
    EXPECT_NEAR(costs.layer_transfer, of_bf16 * 4.5 / 16, 1e-4);
    EXPECT_NEAR(costs.layer_traffic, bytes / 4.8e12 * 4.5 / 16, 1e-6);
    EXPECT_EQ(costs.link_power, 0.0);
}

}  // namespace loratrain
