#include "plan/text/plan_text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

Plan odd_plan() {
    Plan plan = uniform_case(3, 2, 8, 10, 4).plan();
    plan.model.family = "odd \"family\" \\ : {x}, # \n\t\x01 \xc3\xa9";
    plan.model.rms_norm_eps = 0.1 + 0.2;
    plan.model.attention().rope = {RopeType::llama3, 500000.0, 1.0 / 3.0, 1e-300, 12345678.9, 4096};
    plan.model.attention().qk_norm = true;
    plan.model.tie_word_embeddings = true;
    plan.model.embedding_multiplier = 12.0;
    plan.model.attention().multiplier = 1.0 / 128.0;
    plan.model.residual_multiplier = 0.22;
    plan.model.logits_scaling = 1.0 / 3.0;
    plan.model.attention().soft_cap = 50.0;
    plan.model.norms().placement = NormPlacement::both;
    plan.model.dense().activation = Activation::gelu_tanh;
    plan.model.norm_plus_one = true;
    plan.model.embeds_scaled = true;
    plan.model.wrapper = "gemma3";
    plan.model.attention().rope->query_beta = 0.25;
    std::vector<LayerSpec> layers(static_cast<std::size_t>(plan.model.layers), plan.model.layer(0));
    layers[1].attention().rope.reset();
    layers.back().attention().rope =
        RopeSpec{.type = RopeType::yarn, .theta = 7.0, .beta_slow = 1.5};
    layers.back().attention().sliding_window = 4096;
    plan.model.set_layers(layers);
    plan.backend = BackendKind::cuda;
    plan.compute = DType::bf16;
    plan.weights = WeightFormat::bf16;
    plan.adapters[1].name = "true";
    plan.adapters[2].name = "1e3";
    plan.memory[0].weights = 18446744073709551615U;
    plan.memory[1].engine = 77;
    plan.model.vocab_size = 300;
    plan.replicas[0].tensor = 2;
    plan.replicas[0].recompute = Recompute::layer;
    plan.replicas.push_back(plan.replicas[0]);
    plan.replicas[1].tensor = 1;
    plan.replicas[1].microbatch_tokens = 77;
    plan.longest_sample = 12;
    plan.bytes_per_rank = 9876543210;
    plan.costs = {{0.1 + 0.2, 1e-300, 1.0 / 3.0, 0.7 / 3.0},
                  {4, 5, 6},
                  0.7,
                  {7, 8, 9},
                  {{0.1, 0.3}, {14, 15}, {16, 17}, {18, 19}, 20, {22, 23, 24, 0.5}, {25, 26, 27}},
                  10,
                  11,
                  {12, 13},
                  LinkCost{28, 0.2 / 3.0},
                  0.125,
                  0.0625,
                  0.03125,
                  0.375,
                  1.5,
                  4,
                  "\"x\": #"};
    plan.device = "NVIDIA \"T4\"";
    plan.adapters[1].group_samples = 2;
    plan.adapter_capacity = 19;
    plan.first_admitted = {AdapterId{2}, AdapterId{0}};
    plan.replicas[0].stages[0].last_layer_adapters = {2};
    plan.replicas[0].joined = {true, false, true, false};
    plan.replicas[0].stages[0].resident_layers = 7;
    plan.replicas[0].stages[1].kept_layers = 3;
    plan.replicas[0].stages[1].offloaded_layers = 2;
    plan.memory[1].host_activations = 77;
    plan.replicas[0].stages[1].first_layer_adapters = {0, 2};
    return plan;
}

/// "" where the text is a plan.
std::string refusal(const std::string& text) {
    try {
        plan_from_text(text);
        return "";
    } catch (const std::exception& error) {
        return error.what();
    }
}

}  // namespace

TEST(PlanText, KeepsEveryField) {
    const Plan plan = odd_plan();
    const Plan read = plan_from_text(to_text(plan));
    EXPECT_EQ(read.adapter_capacity, 19);
    EXPECT_EQ(read.first_admitted, plan.first_admitted);
    EXPECT_EQ(read.model.family, plan.model.family);
    EXPECT_EQ(read.model.dense().size, plan.model.dense().size);
    EXPECT_EQ(read.model.attention().head_dim, plan.model.attention().head_dim);
    EXPECT_EQ(read.model.rms_norm_eps, plan.model.rms_norm_eps);
    EXPECT_EQ(read.model.attention().rope->type, RopeType::llama3);
    EXPECT_EQ(read.model.attention().rope->factor, plan.model.attention().rope->factor);
    EXPECT_EQ(read.model.attention().rope->low_freq_factor,
              plan.model.attention().rope->low_freq_factor);
    EXPECT_EQ(read.model.attention().rope->high_freq_factor,
              plan.model.attention().rope->high_freq_factor);
    EXPECT_EQ(read.model.attention().rope->original_max_position, 4096);
    EXPECT_EQ(read.model.embedding_multiplier, 12.0);
    EXPECT_EQ(read.model.attention().multiplier, 1.0 / 128.0);
    EXPECT_EQ(read.model.residual_multiplier, 0.22);
    EXPECT_EQ(read.model.logits_scaling, 1.0 / 3.0);
    EXPECT_EQ(read.model.attention().soft_cap, 50.0);
    EXPECT_EQ(read.model.norms().placement, NormPlacement::both);
    EXPECT_EQ(read.model.dense().activation, Activation::gelu_tanh);
    EXPECT_TRUE(read.model.norm_plus_one && read.model.embeds_scaled);
    EXPECT_EQ(read.model.wrapper, "gemma3");
    EXPECT_EQ(read.model.descriptions, plan.model.descriptions);
    EXPECT_EQ(read.model.description_of, plan.model.description_of);
    EXPECT_EQ(read.model.attention().rope, plan.model.attention().rope);
    EXPECT_TRUE(read.model.attention().qk_norm && read.model.tie_word_embeddings &&
                !read.model.attention().qkv_bias);
    EXPECT_EQ(read.backend, BackendKind::cuda);
    EXPECT_EQ(read.compute, DType::bf16);
    EXPECT_EQ(read.weights, WeightFormat::bf16);
    ASSERT_EQ(read.replicas.size(), 2U);
    EXPECT_EQ(read.replicas[0].tensor, 2);
    EXPECT_EQ(read.replicas[1].tensor, 1);
    EXPECT_EQ(read.replicas[1].microbatch_tokens, 77);
    EXPECT_EQ(read.replicas[0].saved_columns, plan.replicas[0].saved_columns);
    EXPECT_EQ(read.adapters[1].name, "true");
    EXPECT_EQ(read.adapters[1].group_samples, 2);
    EXPECT_EQ(read.adapters[2].name, "1e3");
    EXPECT_EQ(read.memory[0].weights, plan.memory[0].weights);
    EXPECT_EQ(read.memory[1].engine, 77U);
    EXPECT_EQ(read.replicas[0].recompute, Recompute::layer);
    EXPECT_EQ(read.longest_sample, 12);
    EXPECT_EQ(read.bytes_per_rank, 9876543210U);
    EXPECT_EQ(read.costs.layer_forward.fixed, 0.1 + 0.2);
    EXPECT_EQ(read.costs.layer_forward.per_token, 1e-300);
    EXPECT_EQ(read.costs.layer_forward.per_square, 1.0 / 3.0);
    EXPECT_EQ(read.costs.layer_forward.per_segment, 0.7 / 3.0);
    EXPECT_EQ(read.costs.layer_backward.per_token, 5);
    EXPECT_EQ(read.costs.first_layer_saving, 0.7);
    EXPECT_EQ(read.costs.head.per_square, 9);
    EXPECT_EQ(read.costs.host.layer_forward.fixed, 0.1);
    EXPECT_EQ(read.costs.host.layer_forward.per_segment, 0.3);
    EXPECT_EQ(read.costs.host.layer_backward.per_segment, 15);
    EXPECT_EQ(read.costs.host.forward.fixed, 16);
    EXPECT_EQ(read.costs.host.backward.per_segment, 19);
    EXPECT_EQ(read.costs.host.head, 20);
    EXPECT_EQ(read.costs.host.new_rows.each, 22);
    EXPECT_EQ(read.costs.host.new_rows.met, 24);
    EXPECT_EQ(read.costs.host.new_rows.per_row, 0.5);
    EXPECT_EQ(read.costs.host.new_targets.first, 26);
    EXPECT_EQ(read.device, plan.device);
    EXPECT_EQ(read.costs.step_per_parameter, 10);
    EXPECT_EQ(read.costs.step_fixed, 11);
    EXPECT_EQ(read.costs.message.fixed, 12);
    EXPECT_EQ(read.costs.message.per_byte, 13);
    EXPECT_EQ(read.costs.link(false).fixed, 28);
    EXPECT_EQ(read.costs.link(false).per_byte, 0.2 / 3.0);
    EXPECT_EQ(read.costs.layer_transfer, 0.125);
    EXPECT_EQ(read.costs.layer_traffic, 0.0625);
    EXPECT_EQ(read.costs.link_power, 0.03125);
    EXPECT_EQ(read.replicas[0].joined, plan.replicas[0].joined);
    EXPECT_EQ(read.replicas[0].stages[0].resident_layers, 7);
    EXPECT_EQ(read.replicas[0].stages[0].kept_layers, 0);
    EXPECT_EQ(read.replicas[0].stages[1].kept_layers, 3);
    EXPECT_EQ(read.replicas[0].stages[0].offloaded_layers, 0);
    EXPECT_EQ(read.replicas[0].stages[1].offloaded_layers, 2);
    EXPECT_EQ(read.costs.offload_per_token, 0.375);
    EXPECT_EQ(read.memory[0].host_activations, 0U);
    EXPECT_EQ(read.memory[1].host_activations, 77U);
    EXPECT_EQ(read.replicas[0].stages[1].resident_layers, all_layers);
    EXPECT_EQ(read.costs.full_speed_ranks, 1.5);
    EXPECT_EQ(read.costs.ranks_per_host, 4);
    EXPECT_EQ(read.costs.source, "\"x\": #");
    EXPECT_EQ(read.replicas[0].stages[1].first_layer, 1);
    EXPECT_TRUE(read.replicas[0].stages[1].has_head);
    EXPECT_TRUE(read.replicas[0].stages[0].first_layer_adapters.is_all());
    EXPECT_EQ(read.replicas[0].stages[0].last_layer_adapters, AdapterSpan{2});
    EXPECT_EQ(read.replicas[0].stages[1].first_layer_adapters, (AdapterSpan{0, 2}));
    EXPECT_TRUE(read.replicas[0].stages[1].last_layer_adapters.is_all());
    EXPECT_EQ(to_text(read), to_text(plan));
}

TEST(PlanText, RefusesOtherFormats) {
    const std::string format = "format: loratrain-plan-3\n";
    const std::string text = to_text(odd_plan());
    ASSERT_TRUE(text.starts_with(format));
    EXPECT_EQ(refusal(text.substr(format.size())),
              "plan text:1: has format '', must be 'loratrain-plan-3'");
    for (const char* other : {"loratrain-plan-2", "", "[1]"}) {
        EXPECT_NE(refusal(cat("format: ", other, "\n", text.substr(format.size()))), "") << other;
    }
}

TEST(PlanText, SaysHowLinearsAreQuantised) {
    Plan plan = odd_plan();
    EXPECT_FALSE(plan_from_text(to_text(plan)).model.quantization);
    plan.model.quantization = {WeightFormat::int8, SourceType::f16};
    const std::string text = to_text(plan);
    EXPECT_EQ(plan_from_text(text).model.quantization, plan.model.quantization);
    std::string bad = text;
    bad.replace(bad.find("fp16"), 4, "fp17");
    EXPECT_NE(refusal(bad), "");
}

TEST(PlanText, RefusesLanesThatTheModelDoesNotHave) {
    const std::string good = to_text(odd_plan());
    for (const char* lanes : {"3", "0", "-2", "65536"}) {
        std::string bad = good;
        bad.replace(bad.find("tensor: 2") + 8, 1, lanes);
        EXPECT_NE(refusal(bad), "") << lanes;
    }
}

TEST(PlanText, RefusesWhatItDidNotWrite) {
    const std::string good = to_text(odd_plan());
    const auto with = [](std::string text, const std::string& from, const std::string& to) {
        return text.replace(text.find(from), from.size(), to);
    };
    EXPECT_NE(refusal("[1, 2"), "");
    EXPECT_NE(refusal("7"), "");
    EXPECT_NE(refusal(with(good, "backend: cuda", "backend: gpu")), "");
    EXPECT_NE(refusal(with(good, "compute: bf16", "compute: bf8")), "");
    EXPECT_NE(refusal(with(good, "weight_format: bf16", "weight_format: bf8")), "");
    EXPECT_NE(refusal(with(good, "weight_format: bf16\n", "")), "");
    EXPECT_NE(refusal(with(good, "longest_sample: 12\n", "")), "");
    EXPECT_NE(refusal(with(good, "max_in_flight: ", "max_in_flight: x")), "");
    EXPECT_NE(refusal(with(good, "qk_norm: true", "qk_norm: 1")), "");
    EXPECT_NE(refusal(with(good, "pad_columns", "columns")), "");
    EXPECT_NE(refusal(with(good, "last_layer_adapters: [2, ", "last_layer_adapters: [")), "");
    EXPECT_NE(refusal(with(good, "first_layer_adapters", "adapters")), "");
    EXPECT_NE(refusal(with(good, "description_of: [0, ", "description_of: [9, ")), "");
    EXPECT_NE(refusal(with(good, "description_of: [0, ", "description_of: [")), "");
    EXPECT_NE(refusal(with(good, "kind: attention", "kind: convolution")), "");
}

TEST(PlanText, KeepsFusedLinearsAndPartsOfHeads) {
    Plan plan = odd_plan();
    plan.replicas[0].tensor = 1;
    plan.model.attention().fused_qkv = true;
    plan.model.dense().fused_gate_up = true;
    plan.model.attention().qk_norm_behind_rope = true;
    plan.model.norms().names = NormNames::hunyuan;
    plan.model.dense().activation = Activation::relu_squared;
    plan.model.attention().rope = {.type = RopeType::longrope,
                                   .attention_factor = 1.1902380714238083,
                                   .short_factors = {1.0, 1.0 / 3.0},
                                   .long_factors = {1.0, 7.0},
                                   .rotated = 0.75,
                                   .interleaved = true};
    const ModelSpec read = plan_from_text(to_text(plan)).model;
    EXPECT_EQ(read.attention().rope, plan.model.attention().rope);
    EXPECT_TRUE(read.attention().fused_qkv && read.dense().fused_gate_up);
    EXPECT_EQ(read.attention(), plan.model.attention());
    EXPECT_EQ(read.norms(), plan.model.norms());
    EXPECT_EQ(read.dense().activation, Activation::relu_squared);
    plan.model.attention().rope->long_factors.clear();
    EXPECT_EQ(plan_from_text(to_text(plan)).model.attention().rope, plan.model.attention().rope)
        << "of a version without them";
}

TEST(PlanText, KeepsExperts) {
    Plan plan = odd_plan();
    plan.replicas[0].tensor = 1;
    plan.model.descriptions.front().mlp = ExpertSpec{128, 8, 768, true};
    EXPECT_EQ(*plan_from_text(to_text(plan)).model.experts(), *plan.model.experts());
    auto& experts = std::get<ExpertSpec>(plan.model.descriptions.front().mlp);
    experts.names = ExpertNames::glm4_moe;
    experts.scores = RouterScores::sigmoid;
    experts.biased_choice = experts.shared_gate = true;
    experts.groups = 8;
    experts.used_groups = 3;
    experts.scale = 2.5;
    experts.shared_size = 1408;
    EXPECT_EQ(*plan_from_text(to_text(plan)).model.experts(), experts);
    experts.names = ExpertNames::gpt_oss;
    experts.activation = Activation::clamped_swiglu;
    experts.router_bias = experts.bias = true;
    plan.model.attention().sinks = true;
    EXPECT_EQ(plan_from_text(to_text(plan)).model.descriptions, plan.model.descriptions);
    EXPECT_FALSE(plan_from_text(to_text(plan)).expert_lora);
    plan.expert_lora = true;
    EXPECT_TRUE(plan_from_text(to_text(plan)).expert_lora);
    EXPECT_FALSE(plan_from_text(to_text(plan)).dora_outputs);
    plan.dora_outputs = true;
    EXPECT_TRUE(plan_from_text(to_text(plan)).dora_outputs);
}

TEST(PlanText, KeepsDeltaNetsAndOutputGates) {
    Plan plan = odd_plan();
    plan.replicas[0].tensor = 1;
    plan.model.attention().output_gate = true;
    std::vector<LayerSpec> layers(static_cast<std::size_t>(plan.model.layers), plan.model.layer(0));
    layers[0].mixer = DeltaNetSpec{16, 32, 128, 64, 3, DeltaLinears::by_key_head};
    plan.model.set_layers(layers);
    EXPECT_EQ(plan_from_text(to_text(plan)).model.descriptions, plan.model.descriptions);
}

TEST(PlanText, KeepsYarn) {
    Plan plan = odd_plan();
    plan.model.attention().rope = {RopeType::yarn, 1e6,  4.0,       1.0,   4.0,
                                   32768,          31.5, 1.0 / 3.0, false, 1.25};
    EXPECT_EQ(plan_from_text(to_text(plan)).model.attention().rope, plan.model.attention().rope);
}

}  // namespace loratrain::plan_test
