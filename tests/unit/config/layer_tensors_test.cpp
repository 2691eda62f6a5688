#include "config/layer_tensors.h"

#include <gtest/gtest.h>

#include "config/model_spec.h"

namespace loratrain {
namespace {

TEST(LayerTensors, Names) {
    const auto name = [](std::int64_t layer, LayerTensor norm, const ModelSpec& spec) {
        const std::string all = layer_tensor_name(layer, norm, spec.layer(layer));
        return all.substr(std::string("model.layers.").size());
    };
    const ModelSpec before;
    EXPECT_EQ(name(0, LayerTensor::norm_before_mixer, before), "0.input_layernorm.weight");
    EXPECT_EQ(name(12, LayerTensor::norm_before_mlp, before), "12.post_attention_layernorm.weight");
    EXPECT_EQ(name(3, LayerTensor::q_norm, before), "3.self_attn.q_norm.weight");
    EXPECT_EQ(name(3, LayerTensor::k_norm, before), "3.self_attn.k_norm.weight");
    ModelSpec both;
    both.norms().placement = NormPlacement::both;
    EXPECT_EQ(name(1, LayerTensor::norm_after_mixer, both), "1.post_attention_layernorm.weight");
    EXPECT_EQ(name(1, LayerTensor::norm_before_mlp, both), "1.pre_feedforward_layernorm.weight");
    EXPECT_EQ(name(1, LayerTensor::norm_after_mlp, both), "1.post_feedforward_layernorm.weight");
    ModelSpec glm4 = both;
    glm4.norms().names = NormNames::glm4;
    EXPECT_EQ(name(1, LayerTensor::norm_before_mixer, glm4), "1.input_layernorm.weight");
    EXPECT_EQ(name(1, LayerTensor::norm_after_mixer, glm4), "1.post_self_attn_layernorm.weight");
    EXPECT_EQ(name(1, LayerTensor::norm_before_mlp, glm4), "1.post_attention_layernorm.weight");
    EXPECT_EQ(name(1, LayerTensor::norm_after_mlp, glm4), "1.post_mlp_layernorm.weight");
    ModelSpec hunyuan;
    hunyuan.norms().names = NormNames::hunyuan;
    EXPECT_EQ(name(1, LayerTensor::q_norm, hunyuan), "1.self_attn.query_layernorm.weight");
    EXPECT_EQ(name(1, LayerTensor::k_norm, hunyuan), "1.self_attn.key_layernorm.weight");
    EXPECT_EQ(name(1, LayerTensor::norm_before_mlp, hunyuan), "1.post_attention_layernorm.weight");
    ModelSpec apertus;
    apertus.norms().names = NormNames::apertus;
    EXPECT_EQ(name(1, LayerTensor::norm_before_mixer, apertus), "1.attention_layernorm.weight");
    EXPECT_EQ(name(1, LayerTensor::norm_before_mlp, apertus), "1.feedforward_layernorm.weight");
    EXPECT_EQ(name(2, LayerTensor::xielu_positive, apertus), "2.mlp.act_fn.alpha_p");
}

TEST(LayerTensors, ThoseThatALayerHas) {
    LayerSpec layer;
    layer.attention() = {.heads = 4, .kv_heads = 2, .head_dim = 8};
    const auto has = [&](LayerTensor tensor) {
        return layer_tensor_shape(layer, 32, tensor).elements();
    };
    EXPECT_EQ(has(LayerTensor::norm_before_mixer), 32);
    EXPECT_EQ(has(LayerTensor::norm_after_mlp), 0);
    EXPECT_EQ(has(LayerTensor::q_norm), 0);
    EXPECT_EQ(has(LayerTensor::router), 0);
    layer.attention().qk_norm = true;
    EXPECT_EQ(has(LayerTensor::k_norm), 8);
    layer.attention().qk_norm_whole = true;
    EXPECT_EQ(has(LayerTensor::q_norm), 32);
    EXPECT_EQ(has(LayerTensor::k_norm), 16);
    layer.dense().activation = Activation::xielu;
    EXPECT_EQ(has(LayerTensor::xielu_negative), 1);
    layer.dense().activation = Activation::relu_squared;
    EXPECT_EQ(has(LayerTensor::xielu_negative), 0);
    layer.mlp = ExpertSpec{.count = 6, .per_token = 2, .size = 16};
    EXPECT_EQ(has(LayerTensor::router), 6 * 32);
    EXPECT_EQ(has(LayerTensor::xielu_positive), 0);
    EXPECT_EQ(has(LayerTensor::router_bias) + has(LayerTensor::shared_gate), 0);
    std::get<ExpertSpec>(layer.mlp).biased_choice = true;
    std::get<ExpertSpec>(layer.mlp).shared_gate = true;
    EXPECT_EQ(has(LayerTensor::router_bias), 6);
    EXPECT_EQ(has(LayerTensor::shared_gate), 32);
    for (const LayerTensor tensor :
         {LayerTensor::sinks, LayerTensor::router_logit_bias, LayerTensor::experts_gate_up_bias,
          LayerTensor::experts_down_bias}) {
        EXPECT_EQ(has(tensor), 0);
        EXPECT_TRUE(is_f32(tensor));
    }
    layer.attention().sinks = true;
    std::get<ExpertSpec>(layer.mlp).router_bias = true;
    std::get<ExpertSpec>(layer.mlp).bias = true;
    EXPECT_EQ(has(LayerTensor::sinks), 4);
    EXPECT_EQ(has(LayerTensor::router_logit_bias), 6);
    EXPECT_EQ(has(LayerTensor::experts_gate_up_bias), 6 * 2 * 16);
    EXPECT_EQ(has(LayerTensor::experts_down_bias), 6 * 32);
    EXPECT_TRUE(is_f32(LayerTensor::router_bias) && !is_f32(LayerTensor::router));
    layer.norms.placement = NormPlacement::after;
    EXPECT_EQ(has(LayerTensor::norm_before_mlp), 0);
    EXPECT_EQ(has(LayerTensor::norm_after_mixer), 32);
}

}  // namespace
}  // namespace loratrain
