#include "config/model_spec.h"
#include "config/model_presets.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace loratrain {
namespace {

ModelSpec small_spec() {
    ModelSpec spec;
    spec.vocab_size = 100;
    spec.hidden_size = 12;
    spec.dense().size = 20;
    spec.layers = 3;
    spec.attention().heads = 4;
    spec.attention().kv_heads = 2;
    spec.attention().head_dim = 5;
    return spec;
}

TEST(ModelSpec, ShapesOfTheLinears) {
    const ModelSpec spec = small_spec();
    const auto expect_shape = [&](Linear linear, std::int64_t in, std::int64_t out) {
        EXPECT_EQ(linear_shape(spec, linear).in, in) << module_name(linear);
        EXPECT_EQ(linear_shape(spec, linear).out, out) << module_name(linear);
    };
    expect_shape(Linear::q, 12, 20);
    expect_shape(Linear::k, 12, 10);
    expect_shape(Linear::v, 12, 10);
    expect_shape(Linear::o, 20, 12);
    expect_shape(Linear::gate, 12, 20);
    expect_shape(Linear::up, 12, 20);
    expect_shape(Linear::down, 20, 12);
}

TEST(ModelSpec, BiasesFollowTheirGroup) {
    ModelSpec spec = small_spec();
    spec.attention().qkv_bias = true;
    EXPECT_TRUE(has_bias(spec, Linear::k));
    EXPECT_FALSE(has_bias(spec, Linear::o));
    EXPECT_FALSE(has_bias(spec, Linear::down));
    spec.attention().o_bias = true;
    EXPECT_TRUE(has_bias(spec, Linear::o));
    spec.dense().bias = true;
    EXPECT_TRUE(has_bias(spec, Linear::gate));
}

TEST(ModelSpec, CountsTheParametersOfMatrixProducts) {
    EXPECT_EQ(matmul_parameters(small_spec()), 3 * (240 + 120 + 120 + 240 + 3 * 240) + 1200);
}

/// Qwen3-30B-A3B: 30.5e9 with its embedding, of which a token takes 3.3e9.
TEST(ModelSpec, CountsExpertsThatAreHeldAndUsed) {
    const ModelSpec spec = *model_preset("qwen3-30b-a3b");
    EXPECT_EQ(model_preset("qwen3-30b-a3b-nf4")->quantization,
              (Quantization{WeightFormat::nf4, SourceType::bf16}));
    constexpr std::int64_t attention = 2048 * (2 * 4096 + 2 * 512);
    constexpr std::int64_t router = 128 * 2048;
    constexpr std::int64_t expert = 3 * 2048 * 768;
    constexpr std::int64_t head = 151936 * 2048;
    EXPECT_EQ(held_parameters(spec), 48 * (attention + router + 128 * expert) + head);
    EXPECT_EQ(matmul_parameters(spec), 48 * (attention + router + 8 * expert) + head);
    EXPECT_FALSE(has_linear(spec, Linear::gate) || has_linear(spec, Linear::down));
    EXPECT_TRUE(has_linear(spec, Linear::o));
    const ModelSpec large = *model_preset("qwen3-235b-a22b");
    EXPECT_NEAR(static_cast<double>(held_parameters(large)), 234.5e9, 0.1e9);
    EXPECT_NEAR(static_cast<double>(matmul_parameters(large)), 21.6e9, 0.1e9);
}

/// gpt-oss-20b: 20.9e9 with its embedding, of which a token takes 3.6e9 with it.
TEST(ModelSpec, GptOssByName) {
    const ModelSpec spec = *model_preset("gpt-oss-20b");
    constexpr double embedding = 201088.0 * 2880.0;
    EXPECT_NEAR(static_cast<double>(held_parameters(spec)) + embedding, 20.9e9, 0.05e9);
    EXPECT_NEAR(static_cast<double>(matmul_parameters(spec)), 3.6e9, 0.05e9);
    EXPECT_EQ(spec.layer(0).attention().sliding_window, 128);
    EXPECT_EQ(spec.layer(1).attention().sliding_window, 0);
    EXPECT_EQ(spec.layer(22), spec.layer(0));
}

TEST(ModelSpec, EqualLayersShareADescription) {
    ModelSpec spec = small_spec();
    LayerSpec slides = spec.layer(0);
    slides.attention().sliding_window = 8;
    slides.attention().rope->theta = 7.0;
    const LayerSpec full = spec.layer(0);
    spec.set_layers({slides, full, slides, slides});
    EXPECT_EQ(spec.layers, 4);
    EXPECT_EQ(spec.descriptions.size(), 2U);
    EXPECT_EQ(spec.layer(1), full);
    EXPECT_EQ(spec.layer(3), slides);
    for (const std::int64_t layer : {0, 3, 4, 255}) {
        EXPECT_EQ(target_of(spec, layer, Linear::q).shape.out, linear_shape(spec, Linear::q).out)
            << layer;
    }
    std::vector<std::int64_t> numbers;
    for_layers(spec, 1, 3, [&](const LayerSpec& layer, std::int64_t number) {
        numbers.push_back(layer == slides ? number : -number);
    });
    EXPECT_EQ(numbers, (std::vector<std::int64_t>{2, -1}));
    EXPECT_EQ(ropes_of(spec).size(), 2U);
    EXPECT_EQ(ropes_of(spec).front()->theta, 7.0);
    EXPECT_EQ(description_problem(spec), nullptr);
    spec.description_of.pop_back();
    EXPECT_NE(description_problem(spec), nullptr);
    spec.set_layers({full, full});
    EXPECT_EQ(spec.descriptions.size(), 1U);
    EXPECT_TRUE(spec.description_of.empty());
}

TEST(ModelSpec, ShortLengthIsThatOfLongrope) {
    ModelSpec spec = small_spec();
    EXPECT_EQ(short_length(spec), std::numeric_limits<std::int32_t>::max());
    spec.attention().rope->original_max_position = 4096;
    spec.attention().rope->type = RopeType::longrope;
    EXPECT_EQ(short_length(spec), 4096);
}

TEST(ModelSpec, LinearsOfExpertsAreOneInEach) {
    LayerSpec layer;
    layer.mlp = ExpertSpec{6, 2, 24};
    const LayerLinear down = linear_of(layer, 12, Linear::down);
    EXPECT_TRUE(down.is_there && down.is_in_experts());
    EXPECT_EQ(down.shape.in, 24);
    EXPECT_EQ(down.shape.out, 12);
    EXPECT_EQ(down.experts.count, 6);
    EXPECT_FALSE(linear_of(layer, 12, Linear::gate_up).is_there);
    EXPECT_EQ(lane_cut(Linear::down), LaneCut::columns);
    EXPECT_EQ(lane_cut(Linear::k), LaneCut::key_value_heads);
    EXPECT_EQ(linear_group(Linear::qkv), LinearGroup::qkv);
}

TEST(ModelSpec, LinearsOfASharedExpertAreBesideTheOthers) {
    ModelSpec spec = small_spec();
    const std::vector<std::string> names = linear_names(spec);
    ExpertSpec experts{6, 2, 24};
    experts.shared_size = 40;
    std::vector<LayerSpec> layers(3, spec.layer(0));
    layers[1].mlp = layers[2].mlp = experts;
    spec.set_layers(layers);
    EXPECT_EQ(linear_names(spec), names);
    EXPECT_EQ(linear_shape(spec, Linear::shared_down).in, 40);
    EXPECT_FALSE(target_of(spec, 0, Linear::shared_down).is_there);
    EXPECT_FALSE(target_of(spec, 1, Linear::shared_down).is_in_experts());
    EXPECT_TRUE(target_of(spec, 1, Linear::down).is_in_experts());
    EXPECT_FALSE(target_of(spec, 0, Linear::down).is_in_experts());
    EXPECT_TRUE(is_beside_experts(spec, Linear::down) &&
                is_beside_experts(spec, Linear::shared_up));
    EXPECT_FALSE(is_beside_experts(spec, Linear::q));
    EXPECT_EQ(module_path(4, Linear::shared_up), "model.layers.4.mlp.shared_expert.up_proj");
    EXPECT_EQ(target_name(spec, Linear::shared_up), "up_proj");
}

TEST(ModelSpec, NamesOfTheLinears) {
    EXPECT_EQ(std::string(module_name(Linear::q)), "q_proj");
    EXPECT_EQ(std::string(module_name(Linear::down)), "down_proj");
    EXPECT_EQ(target_name(small_spec(), Linear::gate), "gate_proj");
}

TEST(ModelSpec, LinearsOfModules) {
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        EXPECT_EQ(linear_of_module(module_path(12, linear)), linear);
    }
    EXPECT_EQ(linear_of_module("model.layers.3.mlp.experts.17.gate_proj"), Linear::gate);
    EXPECT_EQ(linear_of_module("lm_head"), Linear::head);
    EXPECT_EQ(linear_of_module("model.embed_tokens"), Linear::embedding);
    for (const char* other : {"model.layers.3.self_attn.gate_proj", "model.layers.3.mlp.q_proj",
                              "model.layers.3.mlp.gate", "q_proj", "model.norm", ""}) {
        EXPECT_FALSE(linear_of_module(other)) << other;
    }
}

}  // namespace
}  // namespace loratrain
