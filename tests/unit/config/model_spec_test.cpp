#include "config/model_spec.h"
#include "config/model_presets.h"

#include <gtest/gtest.h>

#include <string>

namespace loratrain {
namespace {

ModelSpec small_spec() {
    ModelSpec spec;
    spec.vocab_size = 100;
    spec.hidden_size = 12;
    spec.intermediate_size = 20;
    spec.layers = 3;
    spec.heads = 4;
    spec.kv_heads = 2;
    spec.head_dim = 5;
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
    spec.qkv_bias = true;
    EXPECT_TRUE(has_bias(spec, Linear::k));
    EXPECT_FALSE(has_bias(spec, Linear::o));
    EXPECT_FALSE(has_bias(spec, Linear::down));
    spec.o_bias = true;
    EXPECT_TRUE(has_bias(spec, Linear::o));
    spec.mlp_bias = true;
    EXPECT_TRUE(has_bias(spec, Linear::gate));
}

TEST(ModelSpec, CountsTheParametersOfMatrixProducts) {
    EXPECT_EQ(matmul_parameters(small_spec()), 3 * (240 + 120 + 120 + 240 + 3 * 240) + 1200);
}

/// Qwen3-30B-A3B: 30.5e9 with its embedding, of which a token takes 3.3e9.
TEST(ModelSpec, CountsExpertsThatAreHeldAndUsed) {
    const ModelSpec spec = *model_preset("qwen3-30b-a3b");
    EXPECT_FALSE(model_preset("qwen3-30b-a3b-nf4"));
    constexpr std::int64_t attention = 2048 * (2 * 4096 + 2 * 512);
    constexpr std::int64_t router = 128 * 2048;
    constexpr std::int64_t expert = 3 * 2048 * 768;
    constexpr std::int64_t head = 151936 * 2048;
    EXPECT_EQ(held_parameters(spec), 48 * (attention + router + 128 * expert) + head);
    EXPECT_EQ(matmul_parameters(spec), 48 * (attention + router + 8 * expert) + head);
    EXPECT_FALSE(has_linear(spec, Linear::gate) || has_linear(spec, Linear::down));
    EXPECT_TRUE(has_linear(spec, Linear::o));
}

TEST(ModelSpec, NamesOfTheLinears) {
    EXPECT_EQ(std::string(module_name(Linear::q)), "q_proj");
    EXPECT_EQ(std::string(module_name(Linear::down)), "down_proj");
}

}  // namespace
}  // namespace loratrain
