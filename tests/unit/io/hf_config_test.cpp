#include "io/weights/hf_config.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/model_presets.h"
#include "io/files.h"
#include "support/golden_path.h"
#include "support/problems.h"

namespace loratrain::test {
namespace {

using nlohmann::json;

ModelSpec golden_model(const std::string& family) {
    const std::string path = golden_path(family) + "/base/config.json";
    return parse_hf_config(read_text(path), path);
}

json config(const std::string& family) {
    json document = {{"model_type", family},    {"vocab_size", 100},
                     {"hidden_size", 64},       {"num_hidden_layers", 32},
                     {"intermediate_size", 96}, {"num_attention_heads", 4},
                     {"num_key_value_heads", 2}};
    return document;
}

json with(json document, const json& changes) {
    document.merge_patch(changes);
    return document;
}

ModelSpec parse(const json& document) {
    return parse_hf_config(document.dump(), "config.json");
}

std::vector<LayerSpec> layers_of(const ModelSpec& spec) {
    std::vector<LayerSpec> layers;
    for (std::int64_t i = 0; i < spec.layers; ++i) layers.push_back(spec.layer(i));
    return layers;
}

bool all_rotate(const std::vector<LayerSpec>& layers) {
    return std::all_of(layers.begin(), layers.end(),
                       [](const LayerSpec& layer) { return layer.attention().rope.has_value(); });
}

/// Of a layer with a sliding window, or one without.
RopeSpec rope_where(const ModelSpec& spec, bool slides) {
    for (const LayerSpec& layer : spec.descriptions) {
        if ((layer.attention().sliding_window > 0) == slides) return *layer.attention().rope;
    }
    throw Error("no layer is of that kind");
}
RopeSpec rope_of(const ModelSpec& spec) {
    return rope_where(spec, false);
}
RopeSpec sliding_rope_of(const ModelSpec& spec) {
    return rope_where(spec, true);
}

std::string config_refusal(const json& document) {
    return problem_text([&] { parse(document); });
}

std::string refusal_with(const json& changes, const std::string& family = "llama") {
    return config_refusal(with(config(family), changes));
}

TEST(HfConfigTest, GoldenLlama) {
    const ModelSpec spec = golden_model("llama");
    EXPECT_EQ(spec.family, "llama");
    EXPECT_EQ(spec.vocab_size, 320);
    EXPECT_EQ(spec.hidden_size, 64);
    EXPECT_EQ(spec.dense().size, 160);
    EXPECT_EQ(spec.layers, 4);
    EXPECT_EQ(spec.attention().heads, 8);
    EXPECT_EQ(spec.attention().kv_heads, 2);
    EXPECT_EQ(spec.attention().head_dim, 8);
    EXPECT_EQ(spec.rms_norm_eps, 1e-5);
    EXPECT_EQ(spec.attention().rope->type, RopeType::llama3);
    EXPECT_EQ(spec.attention().rope->theta, 500000.0);
    EXPECT_EQ(spec.attention().rope->factor, 8.0);
    EXPECT_EQ(spec.attention().rope->low_freq_factor, 1.0);
    EXPECT_EQ(spec.attention().rope->high_freq_factor, 4.0);
    EXPECT_EQ(spec.attention().rope->original_max_position, 32);
    EXPECT_FALSE(spec.attention().qkv_bias || spec.attention().o_bias || spec.dense().bias ||
                 spec.attention().qk_norm);
    EXPECT_FALSE(spec.tie_word_embeddings);
}

TEST(HfConfigTest, GoldenQwenAndMistral) {
    const ModelSpec qwen2 = golden_model("qwen2");
    EXPECT_TRUE(qwen2.attention().qkv_bias);
    EXPECT_FALSE(qwen2.attention().o_bias);
    EXPECT_TRUE(qwen2.tie_word_embeddings);
    EXPECT_EQ(qwen2.attention().head_dim, 8);
    EXPECT_EQ(qwen2.attention().rope->theta, 1e6);
    EXPECT_EQ(qwen2.attention().rope->type, RopeType::standard);
    const ModelSpec qwen3 = golden_model("qwen3");
    EXPECT_TRUE(qwen3.attention().qk_norm);
    EXPECT_FALSE(qwen3.attention().qkv_bias);
    EXPECT_EQ(qwen3.attention().head_dim, 16);
    const ModelSpec mistral = golden_model("mistral");
    EXPECT_EQ(mistral.attention().kv_heads, 1);
    EXPECT_EQ(mistral.attention().rope->theta, 10000.0);
}

TEST(HfConfigTest, GoldenSmolLm3) {
    const ModelSpec spec = golden_model("smollm3");
    EXPECT_EQ(spec.family, "smollm3");
    EXPECT_EQ(spec.attention().rope->theta, 5e6);
    EXPECT_TRUE(spec.tie_word_embeddings);
    EXPECT_FALSE(spec.attention().qkv_bias || spec.attention().o_bias || spec.dense().bias);
    EXPECT_EQ(spec.descriptions.size(), 2U);
    for (std::int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(spec.layer(i).attention().rope.has_value(), i != 2);
}

TEST(HfConfigTest, GoldenGranite) {
    const ModelSpec spec = golden_model("granite");
    EXPECT_EQ(spec.embedding_multiplier, 12.0);
    EXPECT_EQ(spec.attention().multiplier, 0.15);
    EXPECT_EQ(spec.attention().scale(), 0.15);
    EXPECT_EQ(spec.residual_multiplier, 0.22);
    EXPECT_EQ(spec.logits_scaling, 3.0);
    EXPECT_DOUBLE_EQ(spec.embedding_scale(), 12.0 / 0.22);
    EXPECT_DOUBLE_EQ(spec.stream_eps(), 1e-5 / (0.22 * 0.22));
    EXPECT_TRUE(spec.description_of.empty());
    const ModelSpec llama = golden_model("llama");
    EXPECT_EQ(llama.embedding_scale(), 1.0);
    EXPECT_EQ(llama.stream_eps(), llama.rms_norm_eps);
    EXPECT_EQ(llama.attention().scale(), 1.0 / std::sqrt(8.0));
}

TEST(HfConfigTest, GoldenSeedOss) {
    const ModelSpec spec = golden_model("seed_oss");
    EXPECT_TRUE(spec.attention().qkv_bias);
    EXPECT_FALSE(spec.attention().o_bias || spec.dense().bias || spec.tie_word_embeddings);
    EXPECT_EQ(spec.attention().head_dim, 16);
    EXPECT_EQ(spec.attention().rope->theta, 1e7);
}

/// As transformers 4 wrote the config.json of a golden family.
json older_spelling(const std::string& family) {
    json document = json::parse(read_text(golden_path(family) + "/base/config.json"));
    document["rope_theta"] = document["rope_parameters"]["rope_theta"];
    document["rope_scaling"] = nullptr;
    document["torch_dtype"] = document["dtype"];
    for (const char* key : {"rope_parameters", "dtype", "layer_types"}) document.erase(key);
    return document;
}

TEST(HfConfigTest, GoldenOlmo) {
    const ModelSpec olmo2 = golden_model("olmo2");
    EXPECT_TRUE(olmo2.attention().qk_norm && olmo2.attention().qk_norm_whole);
    EXPECT_EQ(olmo2.norms().placement, NormPlacement::after);
    EXPECT_EQ(olmo2.attention().rope->theta, 500000.0);
    EXPECT_EQ(olmo2.attention().head_dim, 12);
    EXPECT_EQ(olmo2.attention().q_norm_size(), 48);
    EXPECT_EQ(olmo2.attention().k_norm_size(), 24);
    const ModelSpec olmo3 = golden_model("olmo3");
    EXPECT_EQ(olmo3.norms().placement, NormPlacement::after);
    for (std::int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(olmo3.layer(i).attention().sliding_window, i < 3 ? 6 : 0);
    EXPECT_EQ(sliding_rope_of(olmo3).type, RopeType::standard);
    EXPECT_EQ(rope_of(olmo3).type, RopeType::yarn);
    EXPECT_EQ(olmo3.layer(0).attention().scale(), 1.0 / std::sqrt(12.0));
    EXPECT_GT(olmo3.layer(3).attention().scale(), 1.2 / std::sqrt(12.0));
}

TEST(HfConfigTest, GoldenGemma) {
    const ModelSpec gemma2 = golden_model("gemma2");
    EXPECT_EQ(gemma2.norms().placement, NormPlacement::both);
    EXPECT_TRUE(gemma2.norm_plus_one && gemma2.embeds_scaled && gemma2.tie_word_embeddings);
    EXPECT_EQ(gemma2.dense().activation, Activation::gelu_tanh);
    EXPECT_DOUBLE_EQ(gemma2.embedding_scale(), std::sqrt(48.0));
    EXPECT_DOUBLE_EQ(gemma2.attention().scale(), 1.0 / std::sqrt(10.0));
    EXPECT_EQ(gemma2.attention().soft_cap, 2.0);
    EXPECT_EQ(gemma2.logits_soft_cap, 3.0);
    for (std::int64_t i = 0; i < 3; ++i)
        EXPECT_EQ(gemma2.layer(i).attention().sliding_window, i == 1 ? 0 : 6);
    EXPECT_EQ(sliding_rope_of(gemma2), rope_of(gemma2));
    EXPECT_FALSE(gemma2.attention().qk_norm);
    const ModelSpec gemma3 = golden_model("gemma3_text");
    EXPECT_TRUE(gemma3.attention().qk_norm);
    EXPECT_FALSE(gemma3.attention().qk_norm_whole);
    EXPECT_EQ(gemma3.attention().soft_cap, 0.0);
    EXPECT_EQ(gemma3.logits_soft_cap, 0.0);
    // transformers reads the one and never uses it; of the other it does in the text model alone.
    const json caps = {{"attn_logit_softcapping", 2.0}, {"final_logit_softcapping", 3.0}};
    const ModelSpec capped = parse(with(config("gemma3_text"), caps));
    EXPECT_EQ(capped.attention().soft_cap, 0.0);
    EXPECT_EQ(capped.logits_soft_cap, 3.0);
    const json around = {{"model_type", "gemma3"},
                         {"text_config", with(config("gemma3_text"), caps)}};
    EXPECT_EQ(parse(around).logits_soft_cap, 0.0);
    EXPECT_EQ(sliding_rope_of(gemma3).theta, 10000.0);
    EXPECT_EQ(rope_of(gemma3).theta, 100000.0);
    EXPECT_EQ(rope_of(gemma3).type, RopeType::linear);
}

TEST(HfConfigTest, TextModelsInsideOfOthers) {
    const ModelSpec gemma3 = golden_model("gemma3");
    EXPECT_EQ(gemma3.wrapper, "gemma3");
    EXPECT_EQ(gemma3.family, "gemma3_text");
    EXPECT_EQ(gemma3.layers, 2);
    EXPECT_TRUE(gemma3.tie_word_embeddings);
    json text = config("mistral");
    text.erase("model_type");
    const json mistral3 = {{"model_type", "mistral3"},
                           {"architectures", {"Mistral3ForConditionalGeneration"}},
                           {"tie_word_embeddings", false},
                           {"text_config", with(text, {{"model_type", "mistral"}})},
                           {"vision_config", {{"model_type", "pixtral"}}}};
    EXPECT_EQ(parse(mistral3).wrapper, "mistral3");
    EXPECT_EQ(parse(mistral3).family, "mistral");
    EXPECT_FALSE(parse(mistral3).tie_word_embeddings);
    // Mistral-Small-3.1 says nothing of it, and has a head of its own.
    EXPECT_FALSE(parse(with(mistral3, {{"tie_word_embeddings", nullptr}})).tie_word_embeddings);
    EXPECT_TRUE(parse(with(mistral3, {{"tie_word_embeddings", nullptr},
                                      {"text_config", {{"tie_word_embeddings", true}}}}))
                    .tie_word_embeddings);
    EXPECT_FALSE(parse(with(mistral3, {{"text_config", {{"tie_word_embeddings", true}}}}))
                     .tie_word_embeddings)
        << "what stands outside goes before";
    EXPECT_EQ(parse(with(mistral3, {{"text_config", {{"model_type", nullptr}}}})).family,
              "mistral");
    json bare = mistral3;
    bare.erase("text_config");
    EXPECT_TRUE(has(config_refusal(bare), "has no text_config, which a mistral3 has"));
    EXPECT_TRUE(has(config_refusal(with(mistral3, {{"text_config", {{"hidden_size", -1}}}})),
                    "config.json:text_config: hidden_size is -1"));
}

/// What the config.json of Qwen2.5-VL-7B-Instruct says: no text_config.
json published_qwen2_5_vl() {
    return {{"model_type", "qwen2_5_vl"},
            {"architectures", {"Qwen2_5_VLForConditionalGeneration"}},
            {"hidden_size", 3584},
            {"intermediate_size", 18944},
            {"max_position_embeddings", 128000},
            {"max_window_layers", 28},
            {"num_attention_heads", 28},
            {"num_hidden_layers", 28},
            {"num_key_value_heads", 4},
            {"rms_norm_eps", 1e-6},
            {"rope_theta", 1e6},
            {"sliding_window", 32768},
            {"tie_word_embeddings", false},
            {"use_sliding_window", false},
            {"vision_config", {{"hidden_size", 1280}, {"model_type", "qwen2_5_vl"}}},
            {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}},
            {"vocab_size", 152064}};
}

TEST(HfConfigTest, TextModelsOfQwenWithPictures) {
    const ModelSpec seven = parse(published_qwen2_5_vl());
    EXPECT_EQ(seven.wrapper, "qwen2_5_vl");
    EXPECT_EQ(seven.family, "qwen2_5_vl_text");
    EXPECT_EQ(seven.hidden_size, 3584);
    EXPECT_EQ(seven.attention().head_dim, 128);
    EXPECT_TRUE(seven.attention().qkv_bias && !seven.attention().o_bias);
    EXPECT_EQ(seven.attention().sliding_window, 0);
    EXPECT_EQ(rope_of(seven).type, RopeType::standard);
    EXPECT_EQ(rope_of(seven).theta, 1e6);
    EXPECT_FALSE(seven.tie_word_embeddings);
    // As transformers 5 saves it: the text model inside, and its type of rotation renamed.
    json text = published_qwen2_5_vl();
    for (const char* key : {"architectures", "vision_config"}) text.erase(key);
    text["model_type"] = "qwen2_5_vl_text";
    text["rope_scaling"] = {{"type", "mrope"}, {"rope_type", "default"}};
    const json saved = {{"model_type", "qwen2_5_vl"}, {"text_config", text}};
    EXPECT_TRUE(layers_of(parse(saved)) == layers_of(seven));
    EXPECT_EQ(parse(saved).family, seven.family);
    text["tie_word_embeddings"] = true;
    EXPECT_TRUE(parse(with(saved, {{"text_config", text}, {"tie_word_embeddings", false}}))
                    .tie_word_embeddings)
        << "one of them is enough";
    const ModelSpec window = golden_model("qwen2_5_vl");
    EXPECT_EQ(window.layer(1).attention().sliding_window, 0);
    EXPECT_EQ(window.layer(2).attention().sliding_window, 9);
    const ModelSpec qwen3 = golden_model("qwen3_vl");
    EXPECT_TRUE(qwen3.attention().qk_norm);
    EXPECT_EQ(rope_of(qwen3).theta, 5e6);
    const json three = json::parse(read_text(golden_path("qwen3_vl") + "/base/config.json"));
    EXPECT_FALSE(parse(with(three, {{"tie_word_embeddings", nullptr},
                                    {"text_config", {{"tie_word_embeddings", true}}}}))
                     .tie_word_embeddings)
        << "what stands outside goes alone";
    EXPECT_TRUE(has(config_refusal(with(
                        three, {{"text_config", {{"rope_parameters", {{"rope_type", "mrope"}}}}}})),
                    "rope_type"))
        << "transformers has no such type there";
}

TEST(HfConfigTest, GoldenQwen35) {
    const ModelSpec spec = golden_model("qwen3_5");
    EXPECT_EQ(spec.wrapper, "qwen3_5");
    EXPECT_EQ(spec.family, "qwen3_5_text");
    EXPECT_TRUE(spec.norm_plus_one);
    const AttentionSpec& attention = spec.attention();
    EXPECT_TRUE(attention.output_gate && attention.qk_norm && !attention.qkv_bias);
    EXPECT_EQ(attention.rope->rotated, 0.25);
    EXPECT_EQ(attention.rope->theta, 100000.0);
    for (std::int64_t l = 0; l < 4; ++l) {
        const DeltaNetSpec* net = spec.layer(l).delta_net();
        ASSERT_EQ(net != nullptr, l != 3);
        if (net != nullptr) {
            EXPECT_EQ(*net, (DeltaNetSpec{2, 4, 8, 12, 4}));
        }
    }
    EXPECT_EQ(linear_shape(spec, Linear::q).out, 128);
    EXPECT_EQ(linear_shape(spec, Linear::delta_qkv).out, 80);
    EXPECT_FALSE(has_linear(spec, Linear::delta_qkvz));
}

TEST(HfConfigTest, GoldenQwen3Next) {
    const ModelSpec spec = golden_model("qwen3_next");
    EXPECT_TRUE(spec.norm_plus_one && spec.attention().output_gate);
    EXPECT_EQ(*spec.layer(0).delta_net(),
              (DeltaNetSpec{2, 4, 8, 12, 4, DeltaLinears::by_key_head}));
    EXPECT_EQ(linear_shape(spec, Linear::delta_qkvz).out, 128);
    EXPECT_EQ(linear_shape(spec, Linear::delta_ba).out, 8);
    EXPECT_FALSE(has_linear(spec, Linear::delta_qkv));
    EXPECT_EQ(spec.layer(1).experts(), nullptr);
    ASSERT_NE(spec.layer(3).experts(), nullptr);
    EXPECT_TRUE(spec.experts()->normalised && spec.experts()->shared_gate);
    EXPECT_EQ(spec.experts()->shared_size, 32);
}

/// As the config.json of a published one has its text model.
TEST(HfConfigTest, Qwen35AsPublished) {
    const auto text = [](const json& changes) {
        json config = json::parse(R"({"model_type": "qwen3_5_text", "hidden_size": 2560,
            "intermediate_size": 9216, "num_hidden_layers": 8, "num_attention_heads": 16,
            "num_key_value_heads": 4, "head_dim": 256, "attention_bias": false,
            "attn_output_gate": true, "full_attention_interval": 4, "hidden_act": "silu",
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
            "mtp_num_hidden_layers": 1, "mlp_only_layers": [], "rms_norm_eps": 1e-06,
            "tie_word_embeddings": true, "vocab_size": 248320, "rope_parameters": {
            "mrope_interleaved": true, "mrope_section": [11, 11, 10], "rope_type": "default",
            "rope_theta": 10000000, "partial_rotary_factor": 0.25}})");
        config.merge_patch(changes);
        return config;
    };
    const auto whole = [&](const json& changes) {
        return json{{"model_type", "qwen3_5"},
                    {"architectures", json::array({"Qwen3_5ForConditionalGeneration"})},
                    {"text_config", text(changes)},
                    {"tie_word_embeddings", true}};
    };
    const ModelSpec spec = parse(whole(json::object()));
    const ModelSpec preset = *model_preset("qwen3.5-4b");
    EXPECT_EQ(spec.layer(0), preset.layer(0));
    EXPECT_EQ(spec.layer(3), preset.layer(3));
    EXPECT_EQ(spec.layer(7), spec.layer(3));
    EXPECT_TRUE(spec.tie_word_embeddings);
    // Alone, with what its class has where nothing says it.
    const ModelSpec alone = parse({{"model_type", "qwen3_5_text"}});
    EXPECT_TRUE(alone.wrapper.empty());
    EXPECT_EQ(alone.layer(31).attention().rope->rotated, 0.25);
    EXPECT_EQ(*alone.layer(30).delta_net(), (DeltaNetSpec{16, 32, 128, 128}));
    const json types = {{"num_hidden_layers", 2},
                        {"layer_types", {"full_attention", "linear_attention"}}};
    EXPECT_EQ(parse(whole(types)).layer(0).delta_net(), nullptr);
    EXPECT_TRUE(
        has(config_refusal(whole({{"linear_num_value_heads", 24}})), "is not a multiple of"));
    EXPECT_TRUE(has(config_refusal(whole({{"linear_conv_kernel_dim", 9}})), "must be at most 8"));
    EXPECT_TRUE(has(config_refusal(whole({{"hidden_act", "gelu_pytorch_tanh"}})), "only silu"));
    EXPECT_TRUE(has(config_refusal(whole({{"full_attention_interval", 100}})),
                    "models without a layer of attention"));
}

TEST(HfConfigTest, QueriesOfMinistral) {
    const ModelSpec spec = golden_model("ministral3");
    EXPECT_EQ(spec.attention().rope->query_beta, 0.3);
    EXPECT_EQ(spec.attention().rope->original_max_position, 8);
    EXPECT_EQ(spec.attention().rope->type, RopeType::yarn);
    EXPECT_EQ(spec.attention().rope->attention_factor, 1.0);
    const RopeSpec missing = *parse(config("ministral3")).attention().rope;
    EXPECT_EQ(missing.type, RopeType::yarn);
    EXPECT_EQ(missing.theta, 1e6);
    EXPECT_EQ(missing.factor, 16.0);
    EXPECT_EQ(missing.original_max_position, 16384);
    EXPECT_EQ(missing.query_beta, 0.1);
    json zeros = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
    const RopeSpec without =
        *parse(with(config("ministral3"), {{"rope_parameters", zeros}})).attention().rope;
    for (const char* key :
         {"llama_4_scaling_beta", "mscale", "mscale_all_dim", "beta_fast", "beta_slow"}) {
        zeros[key] = 0.0;
    }
    EXPECT_EQ(parse(with(config("ministral3"), {{"rope_parameters", zeros}})).attention().rope,
              without);
    EXPECT_EQ(without.theta, 10000.0) << "that of settings that do not say";
    EXPECT_EQ(without.query_beta, 0.0);
    EXPECT_DOUBLE_EQ(without.attention_factor, 0.1 * std::log(4.0) + 1.0);
    const json scaled = {{"rope_parameters",
                          {{"rope_type", "yarn"},
                           {"factor", 4.0},
                           {"original_max_position_embeddings", 32},
                           {"llama_4_scaling_beta", 0.1}}}};
    EXPECT_EQ(parse(with(config("ministral3"), scaled)).attention().rope->query_beta, 0.1);
    EXPECT_TRUE(has(refusal_with(scaled), "llama_4_scaling_beta"));
}

// As the files of google/gemma-2-2b, google/gemma-3-1b-it and allenai/Olmo-3-7B have them.
TEST(HfConfigTest, OlmoAndGemmaInTheOlderSpelling) {
    const ModelSpec gemma2 =
        parse(with(config("gemma2"), {{"hidden_act", "gelu_pytorch_tanh"},
                                      {"hidden_activation", "gelu_pytorch_tanh"},
                                      {"sliding_window", 4096},
                                      {"query_pre_attn_scalar", 256}}));
    EXPECT_EQ(gemma2.attention().head_dim, 256);
    EXPECT_EQ(gemma2.attention().soft_cap, 50.0);
    EXPECT_EQ(gemma2.logits_soft_cap, 30.0);
    EXPECT_EQ(gemma2.layer(0).attention().sliding_window, 4096);
    EXPECT_EQ(gemma2.layer(1).attention().sliding_window, 0);
    const ModelSpec gemma3 = parse(
        with(config("gemma3_text"), {{"rope_local_base_freq", 10000},
                                     {"rope_theta", 1000000},
                                     {"attn_logit_softcapping", nullptr},
                                     {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                                     {"sliding_window", 512},
                                     {"sliding_window_pattern", 6}}));
    EXPECT_EQ(gemma3.layer(4).attention().sliding_window, 512);
    EXPECT_EQ(gemma3.layer(5).attention().sliding_window, 0);
    EXPECT_EQ(rope_of(gemma3).theta, 1e6);
    EXPECT_EQ(rope_of(gemma3).factor, 8.0);
    EXPECT_EQ(sliding_rope_of(gemma3).type, RopeType::standard);
    EXPECT_EQ(sliding_rope_of(gemma3).theta, 1e4);
    const ModelSpec olmo3 = parse(with(
        config("olmo3"),
        {{"rope_theta", 500000},
         {"rope_scaling",
          {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 8192}}},
         {"sliding_window", 4096}}));
    EXPECT_EQ(olmo3.rms_norm_eps, 1e-5);
    EXPECT_EQ(olmo3.layer(2).attention().sliding_window, 4096);
    EXPECT_EQ(olmo3.layer(3).attention().sliding_window, 0);
    EXPECT_EQ(rope_of(olmo3).type, RopeType::yarn);
    EXPECT_EQ(sliding_rope_of(olmo3).theta, 500000.0);
    const std::string text = refusal_with({{"use_bidirectional_attention", true}}, "gemma3_text");
    EXPECT_TRUE(has(text, "only causal attention"));
}

TEST(HfConfigTest, GoldenGlm4) {
    const ModelSpec spec = golden_model("glm4");
    EXPECT_TRUE(spec.attention().qkv_bias && spec.dense().fused_gate_up);
    EXPECT_FALSE(spec.attention().o_bias || spec.attention().fused_qkv || spec.attention().qk_norm);
    EXPECT_EQ(spec.norms().placement, NormPlacement::both);
    EXPECT_EQ(spec.norms().names, NormNames::glm4);
    EXPECT_EQ(spec.attention().rope->rotated, 0.5);
    EXPECT_TRUE(spec.attention().rope->interleaved);
    EXPECT_EQ(rotary_dim(spec.attention().head_dim, *spec.attention().rope), 8);
    EXPECT_EQ(linear_shape(spec, Linear::gate_up).out, 2 * 96);
    EXPECT_EQ(linear_names(spec), (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj",
                                                            "down_proj", "gate_up_proj"}));
    const ModelSpec older = parse(older_spelling("glm4"));
    EXPECT_EQ(older.attention().rope, spec.attention().rope) << "the family's part";
    EXPECT_EQ(parse(with(older_spelling("glm4"), {{"partial_rotary_factor", 0.25}}))
                  .attention()
                  .rope->rotated,
              0.25);
    EXPECT_TRUE(has(config_refusal(with(older_spelling("glm4"), {{"partial_rotary_factor", 0.2}})),
                    "partial_rotary_factor 0.2 of head_dim 16 is 3 columns"));
}

TEST(HfConfigTest, GoldenGraniteMoe) {
    const ModelSpec spec = golden_model("granitemoe");
    ExpertSpec experts{5, 2, 40, true};
    experts.names = ExpertNames::granitemoe;
    EXPECT_EQ(*spec.experts(), experts);
    EXPECT_TRUE(spec.attention().qkv_bias && spec.attention().o_bias && spec.tie_word_embeddings);
    EXPECT_EQ(spec.attention().scale(), 0.15);
    EXPECT_EQ(spec.embedding_multiplier, 12.0);
    EXPECT_EQ(spec.residual_multiplier, 0.22);
    EXPECT_EQ(spec.logits_scaling, 3.0);
}

TEST(HfConfigTest, Exaone) {
    const ModelSpec spec = golden_model("exaone4");
    EXPECT_TRUE(spec.attention().qk_norm);
    EXPECT_FALSE(spec.attention().qk_norm_whole || spec.attention().qk_norm_behind_rope);
    EXPECT_EQ(spec.norms().placement, NormPlacement::after);
    for (std::int64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(spec.layer(i).attention().sliding_window, i == 2 ? 0 : 6) << i;
        EXPECT_EQ(spec.layer(i).attention().rope.has_value(), i != 2) << i;
    }
    // As LGAI-EXAONE/EXAONE-4.0-1.2B has it: no windows, and all layers rotate.
    const json plain = with(config("exaone4"), {{"rope_theta", 1000000}});
    json small = plain;
    small["sliding_window"] = nullptr;
    small["sliding_window_pattern"] = nullptr;
    small["layer_types"] = json(32, "full_attention");
    const ModelSpec whole = parse(small);
    EXPECT_EQ(whole.descriptions.size(), 1U);
    EXPECT_EQ(rope_of(whole).theta, 1e6);
    const ModelSpec fourth = parse(plain);
    EXPECT_EQ(fourth.layer(2).attention().sliding_window, 4096);
    EXPECT_FALSE(fourth.layer(3).attention().rope.has_value());
    // As LGAI-EXAONE/EXAONE-4.0-32B has it beside layer_types.
    const json worded = with(plain, {{"sliding_window_pattern", "LLLG"}});
    EXPECT_TRUE(has(config_refusal(worded), "sliding_window_pattern is \"LLLG\""));
    json listed = worded;
    listed["layer_types"] = json(32, "sliding_attention");
    listed["layer_types"][7] = "full_attention";
    EXPECT_EQ(parse(listed).layer(3).attention().sliding_window, 4096);
    EXPECT_FALSE(parse(listed).layer(7).attention().rope.has_value());
}

TEST(HfConfigTest, Hunyuan) {
    const ModelSpec spec = golden_model("hunyuan_v1_dense");
    EXPECT_TRUE(spec.attention().qk_norm && spec.attention().qk_norm_behind_rope);
    EXPECT_EQ(spec.norms().names, NormNames::hunyuan);
    EXPECT_EQ(rope_of(spec).type, RopeType::standard);
    EXPECT_DOUBLE_EQ(rope_of(spec).theta, 10000.0 * std::pow(50.0, 16.0 / 14.0));
    // As tencent/Hunyuan-7B-Instruct has it.
    const json scaling = {{"alpha", 1000.0},  {"beta_fast", 32}, {"beta_slow", 1},
                          {"factor", 1.0},    {"mscale", 1.0},   {"mscale_all_dim", 1.0},
                          {"type", "dynamic"}};
    const json published = with(config("hunyuan_v1_dense"), {{"head_dim", 128},
                                                             {"num_experts", 1},
                                                             {"rope_scaling", scaling},
                                                             {"rope_theta", 10000.0}});
    EXPECT_DOUBLE_EQ(rope_of(parse(published)).theta, 1e4 * std::pow(1000.0, 128.0 / 126.0));
    const json no_alpha = with(published, {{"rope_scaling", {{"alpha", nullptr}}}});
    EXPECT_TRUE(has(config_refusal(no_alpha), "rope_scaling.type is \"dynamic\""));
    EXPECT_TRUE(has(config_refusal(with(published, {{"model_type", "llama"}})),
                    "rope_scaling.type is \"dynamic\""));
    EXPECT_TRUE(has(config_refusal(with(published, {{"rope_scaling", {{"alpha", -1}}}})),
                    "rope_scaling.alpha is -1"));
}

// As the config.json of baidu/ERNIE-4.5-0.3B-PT has it.
TEST(HfConfigTest, Ernie) {
    const json published = json::parse(R"({"architectures": ["Ernie4_5ForCausalLM"],
        "bos_token_id": 1, "eos_token_id": 2, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 131072,
        "model_type": "ernie4_5", "num_attention_heads": 16, "num_hidden_layers": 18,
        "num_key_value_heads": 2, "pad_token_id": 0, "rms_norm_eps": 1e-05, "rope_scaling": null,
        "rope_theta": 500000.0, "tie_word_embeddings": true, "use_bias": false,
        "vocab_size": 103424})");
    const ModelSpec spec = parse(published);
    EXPECT_EQ(spec.attention().kv_heads, 2);
    EXPECT_EQ(rope_of(spec).theta, 5e5);
    EXPECT_EQ(rope_of(spec).rotated, 1.0);
    EXPECT_TRUE(rope_of(spec).interleaved && spec.tie_word_embeddings);
    EXPECT_FALSE(spec.attention().qkv_bias || spec.attention().o_bias || spec.dense().bias);
    EXPECT_EQ(parse({{"model_type", "ernie4_5"}}).descriptions, spec.descriptions)
        << "the class has the same";
    const ModelSpec biased = golden_model("ernie4_5_bias");
    EXPECT_TRUE(biased.attention().qkv_bias && biased.attention().o_bias && biased.dense().bias);
    const json others = {{"attention_bias", true}, {"mlp_bias", true}};
    EXPECT_EQ(parse(with(published, others)).descriptions, spec.descriptions);
    EXPECT_TRUE(has(config_refusal(with(published, {{"use_bias", "no"}})), "use_bias is \"no\""));
    EXPECT_TRUE(has(config_refusal(with(published, {{"partial_rotary_factor", 0.5}})),
                    "partial_rotary_factor is 0.5, must be 1 in this family"));
}

TEST(HfConfigTest, GoldenPhi3) {
    const ModelSpec spec = golden_model("phi3");
    EXPECT_TRUE(spec.attention().fused_qkv && spec.dense().fused_gate_up &&
                spec.tie_word_embeddings);
    EXPECT_EQ(spec.attention().rope->type, RopeType::longrope);
    EXPECT_EQ(spec.attention().rope->short_factors,
              (std::vector<double>{1.0, 1.1, 1.25, 1.5, 2.0, 2.75}));
    EXPECT_EQ(spec.attention().rope->long_factors,
              (std::vector<double>{1.0, 1.5, 2.0, 4.0, 8.0, 16.0}));
    EXPECT_EQ(spec.attention().rope->original_max_position, 64);
    EXPECT_DOUBLE_EQ(spec.attention().rope->attention_factor,
                     std::sqrt(1.0 + std::log(256.0 / 64.0) / std::log(64.0)));
    EXPECT_EQ(rotary_dim(spec.attention().head_dim, *spec.attention().rope), 12);
    EXPECT_EQ(spec.attention().scale(), 0.25) << "what is not rotated stays as long as it was";
    EXPECT_EQ(linear_names(spec),
              (std::vector<std::string>{"o_proj", "down_proj", "qkv_proj", "gate_up_proj"}));
    EXPECT_EQ(linear_shape(spec, Linear::qkv).out, 64 + 2 * 32);
    EXPECT_EQ(linear_shape(spec, Linear::q).out, 0);
    const ModelSpec phi3 = golden_model("phi3_window");
    EXPECT_EQ(phi3.layer(1).attention().sliding_window, 6);
    EXPECT_EQ(phi3.attention().rope->theta, 250000.0);
}

// As the files of microsoft/Phi-3-mini-128k-instruct and Phi-4-mini-instruct have them.
TEST(HfConfigTest, Phi3InTheOlderSpelling) {
    json older = older_spelling("phi3");
    const std::vector<double> factors{1.0, 1.1, 1.25, 1.5, 2.0, 2.75};
    const std::vector<double> of_long{1.0, 1.5, 2.0, 4.0, 8.0, 16.0};
    older["rope_scaling"] = {{"type", "su"}, {"short_factor", factors}, {"long_factor", of_long}};
    older["partial_rotary_factor"] = 0.75;
    EXPECT_EQ(parse(older).attention().rope, golden_model("phi3").attention().rope);
    older["rope_scaling"]["type"] = "longrope";
    EXPECT_EQ(parse(older).attention().rope, golden_model("phi3").attention().rope);
    older["rope_scaling"]["type"] = "yarn";  // an old name of it in this family
    EXPECT_EQ(parse(older).attention().rope, golden_model("phi3").attention().rope);
    older["rope_scaling"]["type"] = "linear";
    EXPECT_TRUE(has(config_refusal(older), "this family has longrope or default"));
    older["rope_scaling"]["type"] = "su";
    older["rope_scaling"]["rope_type"] = "longrope";
    EXPECT_EQ(parse(older).attention().rope, golden_model("phi3").attention().rope);
    json inside = older;
    inside.erase("original_max_position_embeddings");
    inside["rope_scaling"]["original_max_position_embeddings"] = 64;
    EXPECT_TRUE(has(config_refusal(inside), "which transformers does not read there"));
    inside["rope_scaling"].erase("original_max_position_embeddings");
    EXPECT_EQ(parse(inside).attention().rope->original_max_position, 4096);
    older["partial_rotary_factor"] = 1.0;
    EXPECT_TRUE(
        has(config_refusal(older), "short_factor has 6 numbers, must have one for each of the 8"));
    older["rope_scaling"]["short_factor"] = "x";
    EXPECT_TRUE(has(config_refusal(older), "must be a list of numbers above 0"));
    older["partial_rotary_factor"] = 0.75;
    older["rope_scaling"]["short_factor"] = factors;
    older["rope_scaling"]["long_factor"].erase(0);
    EXPECT_TRUE(has(config_refusal(older), "long_factor has 5 numbers, must have one for each"));
    older["rope_scaling"].erase("long_factor");
    const std::string missing = config_refusal(older);
    EXPECT_TRUE(has(missing, "long_factor is null, must be a list of numbers above 0")) << missing;
    EXPECT_FALSE(has(missing, "one for each")) << missing;
}

TEST(HfConfigTest, GoldenApertus) {
    const ModelSpec spec = golden_model("apertus");
    EXPECT_EQ(spec.dense().activation, Activation::xielu);
    EXPECT_TRUE(spec.attention().qk_norm);
    EXPECT_FALSE(spec.dense().has_gate() || spec.attention().qkv_bias ||
                 spec.attention().qk_norm_whole);
    EXPECT_EQ(spec.attention().rope->type, RopeType::llama3);
    EXPECT_EQ(spec.attention().head_dim, 12);
    EXPECT_EQ(linear_names(spec), (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj",
                                                            "up_proj", "down_proj"}));
    json older = older_spelling("apertus");
    EXPECT_TRUE(has(config_refusal(with(older, {{"rope_scaling", nullptr}})),
                    "rope_parameters are missing"));
    older["rope_scaling"] = {{"rope_type", "llama3"},
                             {"factor", 8.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 32}};
    EXPECT_EQ(parse(older).attention().rope, spec.attention().rope);
    EXPECT_TRUE(has(config_refusal(with(older, {{"hidden_act", "silu"}})), "must be xielu"));
}

TEST(HfConfigTest, GoldenArcee) {
    const ModelSpec spec = golden_model("arcee");
    EXPECT_EQ(spec.dense().activation, Activation::relu_squared);
    EXPECT_FALSE(has_activation_weights(spec.layer(0)));
    EXPECT_TRUE(spec.dense().bias);
    EXPECT_EQ(linear_names(spec), (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj",
                                                            "up_proj", "down_proj"}));
    EXPECT_TRUE(has(config_refusal(with(older_spelling("arcee"), {{"hidden_act", "silu"}})),
                    "must be relu2"));
}

TEST(HfConfigTest, GoldenQwen3Moe) {
    const ModelSpec spec = golden_model("qwen3_moe");
    EXPECT_EQ(*spec.experts(), (ExpertSpec{6, 2, 24, true}));
    EXPECT_TRUE(spec.attention().qk_norm && (spec.experts() != nullptr));
    EXPECT_FALSE(spec.attention().qkv_bias || spec.tie_word_embeddings);
    EXPECT_EQ(linear_names(spec),
              (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj"}));
    json older = older_spelling("qwen3_moe");
    older["num_experts"] = older["num_local_experts"];
    older.erase("num_local_experts");
    EXPECT_EQ(*parse(older).experts(), *spec.experts());
    EXPECT_EQ(parse(older).attention().rope, spec.attention().rope);
    for (const char* key : {"num_experts", "num_experts_per_tok", "moe_intermediate_size",
                            "norm_topk_prob", "head_dim", "num_key_value_heads"}) {
        older.erase(key);
    }
    EXPECT_EQ(*parse(older).experts(), (ExpertSpec{128, 8, 768, false}));
    EXPECT_EQ(parse(older).attention().head_dim, 12);
    EXPECT_EQ(parse(older).attention().kv_heads, 4);
}

TEST(HfConfigTest, LayersWithoutExperts) {
    const ModelSpec spec = golden_model("qwen3_moe_dense");
    EXPECT_EQ(*spec.experts(), (ExpertSpec{6, 2, 24, false}));
    EXPECT_EQ(*spec.dense_layers(), DenseSpec{96});
    const auto dense_layers = [](const ModelSpec& model) {
        std::vector<std::int64_t> dense;
        for (std::int64_t layer = 0; layer < model.layers; ++layer) {
            if (model.layer(layer).experts() == nullptr) dense.push_back(layer);
        }
        return dense;
    };
    using Layers = std::vector<std::int64_t>;
    EXPECT_EQ(dense_layers(spec), (Layers{0, 2}));
    EXPECT_EQ(linear_names(spec).size(), 7U);
    const json good = json::parse(read_text(golden_path("qwen3_moe") + "/base/config.json"));
    const auto with_step = [&](int step, const json& dense) {
        return dense_layers(parse(with(good, {{"num_hidden_layers", 6},
                                              {"decoder_sparse_step", step},
                                              {"mlp_only_layers", dense}})));
    };
    EXPECT_EQ(with_step(1, nullptr), Layers{});
    EXPECT_EQ(with_step(1, {5, 9}), Layers{5});
    EXPECT_EQ(with_step(2, json::array()), (Layers{0, 2, 4}));
    EXPECT_EQ(with_step(3, {2}), (Layers{0, 1, 2, 3, 4}));
}

TEST(HfConfigTest, GoldenMixtral) {
    const ModelSpec spec = golden_model("mixtral");
    ExpertSpec experts{5, 2, 40, true};
    experts.names = ExpertNames::mixtral;
    EXPECT_EQ(*spec.experts(), experts);
    EXPECT_EQ(spec.dense_layers(), nullptr);
    EXPECT_EQ(spec.attention().sliding_window, 6);
    json older = older_spelling("mixtral");
    EXPECT_EQ(*parse(older).experts(), experts);
    older["moe_intermediate_size"] = 7;  // which it has not
    older["norm_topk_prob"] = false;
    EXPECT_EQ(*parse(older).experts(), experts);
    for (const char* key :
         {"num_local_experts", "num_experts_per_tok", "intermediate_size", "sliding_window"}) {
        older.erase(key);
    }
    const ModelSpec usual = parse(older);
    EXPECT_EQ(usual.experts()->count, 8);
    EXPECT_EQ(usual.experts()->size, 14336);
    EXPECT_EQ(usual.attention().sliding_window, 0);
}

TEST(HfConfigTest, GoldenQwen2Moe) {
    const ModelSpec spec = golden_model("qwen2_moe");
    ExpertSpec experts{6, 2, 24, false};
    experts.shared_size = 32;
    experts.shared_gate = true;
    EXPECT_EQ(*spec.experts(), experts);
    EXPECT_EQ(spec.layer(1).experts(), nullptr);
    EXPECT_EQ(spec.dense_layers()->size, 96);
    EXPECT_TRUE(spec.attention().qkv_bias && !spec.attention().o_bias);
    json config = json::parse(read_text(golden_path("qwen2_moe") + "/base/config.json"));
    config["qkv_bias"] = false;
    EXPECT_FALSE(parse(config).attention().qkv_bias);
    for (const char* key :
         {"qkv_bias", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
          "norm_topk_prob", "shared_expert_intermediate_size"}) {
        config.erase(key);
    }
    ExpertSpec usual{60, 4, 1408, false};
    usual.shared_size = 5632;
    usual.shared_gate = true;
    EXPECT_EQ(*parse(config).experts(), usual);
    EXPECT_TRUE(parse(config).attention().qkv_bias);
    EXPECT_TRUE(has(config_refusal(with(config, {{"use_sliding_window", true}})),
                    "windows are not supported"));
    EXPECT_TRUE(
        has(config_refusal(with(config, {{"n_shared_experts", 1}})), "experts that all tokens"));
}

TEST(HfConfigTest, GoldenGlm4Moe) {
    const ModelSpec spec = golden_model("glm4_moe");
    ExpertSpec experts{8, 3, 16, true};
    experts.names = ExpertNames::glm4_moe;
    experts.scores = RouterScores::sigmoid;
    experts.biased_choice = true;
    experts.groups = 4;
    experts.used_groups = 2;
    experts.scale = 1.8;
    experts.shared_size = 32;
    EXPECT_EQ(*spec.experts(), experts);
    EXPECT_EQ(spec.layer(0).experts(), nullptr);
    EXPECT_NE(spec.layer(1).experts(), nullptr);
    EXPECT_TRUE(spec.attention().qkv_bias && spec.attention().qk_norm);
    EXPECT_EQ(spec.attention().rope->rotated, 0.5);
    EXPECT_FALSE(spec.attention().rope->interleaved);
    json config = json::parse(read_text(golden_path("glm4_moe") + "/base/config.json"));
    const auto refusal = [&](const json& changes) { return config_refusal(with(config, changes)); };
    EXPECT_TRUE(has(refusal({{"n_group", 3}}), "n_group is 3, must be at most 32 equal groups"));
    EXPECT_TRUE(has(refusal({{"n_group", 8}}), "n_group is 8"));
    EXPECT_TRUE(has(refusal({{"topk_group", 5}}), "topk_group is 5"));
    EXPECT_TRUE(has(refusal({{"topk_group", 1}}), "topk_group is 1"));
    EXPECT_TRUE(has(refusal({{"routed_scaling_factor", 0.0}}), "routed_scaling_factor is 0"));
    EXPECT_EQ(parse(with(config, {{"first_k_dense_replace", 0}})).dense_layers(), nullptr);
    for (const char* key : {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
                            "n_shared_experts", "n_group", "topk_group", "routed_scaling_factor",
                            "norm_topk_prob", "use_qk_norm", "attention_bias", "rope_parameters"}) {
        config.erase(key);
    }
    const ModelSpec usual = parse(config);
    ExpertSpec expected{128, 8, 1408, true};
    expected.names = ExpertNames::glm4_moe;
    expected.scores = RouterScores::sigmoid;
    expected.biased_choice = true;
    expected.shared_size = 1408;
    EXPECT_EQ(*usual.experts(), expected);
    EXPECT_FALSE(usual.attention().qkv_bias || usual.attention().qk_norm);
    EXPECT_EQ(usual.attention().rope->rotated, 0.5);
    EXPECT_EQ(further_layers_of(config.dump()), 0);
    config["num_nextn_predict_layers"] = 2;
    EXPECT_EQ(further_layers_of(config.dump()), 2);
    config["model_type"] = "llama";
    EXPECT_EQ(further_layers_of(config.dump()), 0);
}

TEST(HfConfigTest, GoldenDeepseekV3) {
    const ModelSpec spec = golden_model("deepseek_v3");
    const AttentionSpec& attention = spec.attention();
    EXPECT_EQ(attention.latent, (LatentSpec{20, 12, 6, 12}));
    EXPECT_EQ(attention.head_dim, 16);
    EXPECT_EQ(attention.nope_dim(), 10);
    EXPECT_EQ(attention.o_inputs(), 48);
    EXPECT_EQ(rotary_dim(16, *attention.rope), 6);
    EXPECT_TRUE(attention.rope->interleaved);
    const double all = 0.1 * 0.7 * std::log(4.0) + 1.0;
    EXPECT_DOUBLE_EQ(attention.scale(), all * all / 4.0);
    EXPECT_DOUBLE_EQ(attention.rope->attention_factor, (0.1 * std::log(4.0) + 1.0) / all);
    EXPECT_EQ(linear_names(spec),
              (std::vector<std::string>{"o_proj", "gate_proj", "up_proj", "down_proj", "q_a_proj",
                                        "kv_a_proj_with_mqa", "q_b_proj", "kv_b_proj"}));
    EXPECT_EQ(linear_shape(spec, Linear::latent_kv_a).out, 18);
    EXPECT_EQ(linear_shape(spec, Linear::latent_kv_b).out, 88);
    EXPECT_EQ(linear_shape(spec, Linear::o).in, 48);
    EXPECT_TRUE(has_bias(spec, Linear::latent_q_a) && !has_bias(spec, Linear::latent_q_b));
    EXPECT_EQ(spec.layer(0).experts(), nullptr);

    const json config = json::parse(read_text(golden_path("deepseek_v3") + "/base/config.json"));
    const auto refusal = [&](const json& changes) { return config_refusal(with(config, changes)); };
    EXPECT_TRUE(has(refusal({{"v_head_dim", 17}}), "v_head_dim is 17, is more than"));
    EXPECT_TRUE(has(refusal({{"qk_rope_head_dim", 5}}), "qk_rope_head_dim is 5, is odd"));
    EXPECT_TRUE(has(refusal({{"num_key_value_heads", 2}}), "must be num_attention_heads, 4"));
    json without_rank = config;
    without_rank["q_lora_rank"] = nullptr;  // which a merge patch would take away
    EXPECT_TRUE(has(config_refusal(without_rank), "attention_bias is true, with"));
    EXPECT_TRUE(has(refusal({{"partial_rotary_factor", 0.5}}), "must be 1 in this family"));
    const auto scale = [&](const json& changes) {
        json changed = config;
        changed["rope_parameters"].update(changes);
        return parse(changed).attention().scale();
    };
    EXPECT_DOUBLE_EQ(scale({{"mscale_all_dim", 0.0}}), 0.25);
    EXPECT_DOUBLE_EQ(scale({{"rope_type", "default"}}), 0.25);
    json usual = config;
    for (const char* key : {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
                            "v_head_dim", "first_k_dense_replace", "num_hidden_layers"}) {
        usual.erase(key);
    }
    EXPECT_EQ(parse(usual).attention().latent, (LatentSpec{1536, 512, 64, 128}));
    EXPECT_EQ(parse(usual).layer(2).experts(), nullptr);
    EXPECT_NE(parse(usual).layer(3).experts(), nullptr);
}

TEST(HfConfigTest, GoldenGlm4MoeLite) {
    const ModelSpec spec = golden_model("glm4_moe_lite");
    EXPECT_EQ(spec.attention().latent, (LatentSpec{0, 12, 6, 16}));
    EXPECT_FALSE(spec.attention().rope->interleaved);
    EXPECT_EQ(spec.attention().scale(), 0.25);
    EXPECT_EQ(linear_names(spec),
              (std::vector<std::string>{"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
                                        "kv_a_proj_with_mqa", "kv_b_proj"}));
    EXPECT_NE(spec.layer(1).experts(), nullptr);
    EXPECT_EQ(spec.layer(2).experts(), nullptr);
    json config = json::parse(read_text(golden_path("glm4_moe_lite") + "/base/config.json"));
    const auto refusal = [&](const json& changes) { return config_refusal(with(config, changes)); };
    EXPECT_TRUE(has(refusal({{"mlp_layer_types", {"dense"}}}), "for each of the 3 layers"));
    EXPECT_TRUE(has(refusal({{"mlp_layer_types", {"dense", "dense", 1}}}), "dense or sparse"));
    config.erase("mlp_layer_types");
    config.erase("rope_interleave");
    EXPECT_EQ(parse(config).layer(0).experts(), nullptr);
    EXPECT_NE(parse(config).layer(2).experts(), nullptr);
    EXPECT_TRUE(parse(config).attention().rope->interleaved);
    EXPECT_TRUE(has(refusal({{"first_k_dense_replace", 2}}), "does not read in this family"));
}

TEST(HfConfigTest, RotatedPartOfALatentHeadIsExact) {
    for (const std::int64_t nope : {17, 41, 96, 128}) {
        for (const std::int64_t rotated : {2, 6, 30, 64}) {
            const ModelSpec spec = parse(with(
                {{"model_type", "deepseek_v3"}},
                {{"qk_nope_head_dim", nope}, {"qk_rope_head_dim", rotated}, {"v_head_dim", 8}}));
            EXPECT_EQ(rotary_dim(nope + rotated, *spec.attention().rope), rotated);
        }
    }
}

ExpertSpec gpt_oss_experts(std::int64_t count, std::int64_t per_token, std::int64_t size) {
    ExpertSpec experts{count, per_token, size, true};
    experts.activation = Activation::clamped_swiglu;
    experts.names = ExpertNames::gpt_oss;
    experts.router_bias = true;
    experts.bias = true;
    return experts;
}

TEST(HfConfigTest, GoldenGptOss) {
    const ModelSpec spec = golden_model("gpt_oss");
    EXPECT_EQ(*spec.experts(), gpt_oss_experts(5, 2, 32));
    EXPECT_EQ(spec.dense_layers(), nullptr);
    EXPECT_TRUE(spec.attention().qkv_bias && spec.attention().o_bias && spec.attention().sinks);
    EXPECT_EQ(spec.layer(0).attention().sliding_window, 6);
    EXPECT_EQ(spec.layer(1).attention().sliding_window, 0);
    EXPECT_EQ(spec.layer(2), spec.layer(0));
    EXPECT_EQ(spec.attention().rope->type, RopeType::yarn);
    EXPECT_FALSE(spec.attention().rope->truncate);
    EXPECT_FALSE(golden_model("gpt_oss_mxfp4").quantization);
    EXPECT_EQ(golden_model("gpt_oss_mxfp4").descriptions, spec.descriptions);
    const json config = json::parse(read_text(golden_path("gpt_oss") + "/base/config.json"));
    const auto refusal = [&](const json& changes) { return config_refusal(with(config, changes)); };
    EXPECT_TRUE(has(refusal({{"swiglu_limit", 5.0}}), "swiglu_limit is 5.0, must be 7"));
    EXPECT_TRUE(has(refusal({{"swiglu_alpha", 1.5}}), "swiglu_alpha is 1.5, must be 1.702"));
    const ModelSpec without = parse(with(config, {{"attention_bias", false}}));
    EXPECT_FALSE(without.attention().qkv_bias || without.attention().o_bias);
    EXPECT_EQ(parse(with(config, {{"hidden_act", "gelu_pytorch_tanh"}})).descriptions,
              spec.descriptions);  // which the class does not use
    EXPECT_TRUE(has(refusal({{"num_experts_per_tok", 6}}), "num_experts_per_tok is 6"));
}

/// As it is published, without what is said of tokens.
TEST(HfConfigTest, GptOss20bIsItsPreset) {
    json layers = json::array();
    for (int i = 0; i < 12; ++i) {
        layers.push_back("sliding_attention");
        layers.push_back("full_attention");
    }
    const json rope = {{"beta_fast", 32.0},   {"beta_slow", 1.0},
                       {"factor", 32.0},      {"original_max_position_embeddings", 4096},
                       {"rope_type", "yarn"}, {"truncate", false}};
    const json config = {
        {"architectures", {"GptOssForCausalLM"}},
        {"attention_bias", true},
        {"attention_dropout", 0.0},
        {"experts_per_token", 4},
        {"head_dim", 64},
        {"hidden_act", "silu"},
        {"hidden_size", 2880},
        {"initial_context_length", 4096},
        {"intermediate_size", 2880},
        {"layer_types", layers},
        {"max_position_embeddings", 131072},
        {"model_type", "gpt_oss"},
        {"num_attention_heads", 64},
        {"num_experts_per_tok", 4},
        {"num_hidden_layers", 24},
        {"num_key_value_heads", 8},
        {"num_local_experts", 32},
        {"output_router_logits", false},
        {"quantization_config",
         {{"modules_to_not_convert", {"model.layers.*.self_attn"}}, {"quant_method", "mxfp4"}}},
        {"rms_norm_eps", 1e-05},
        {"rope_scaling", rope},
        {"rope_theta", 150000},
        {"router_aux_loss_coef", 0.9},
        {"sliding_window", 128},
        {"swiglu_limit", 7.0},
        {"tie_word_embeddings", false},
        {"vocab_size", 201088}};
    const ModelSpec spec = parse(config);
    const ModelSpec preset = *model_preset("gpt-oss-20b");
    EXPECT_EQ(spec.descriptions, preset.descriptions);
    EXPECT_EQ(spec.description_of, preset.description_of);
    EXPECT_EQ(spec.vocab_size, preset.vocab_size);
    EXPECT_EQ(spec.rms_norm_eps, preset.rms_norm_eps);
    EXPECT_FALSE(spec.quantization || spec.tie_word_embeddings);
    // What config.json leaves out the class says: of the larger model but for its experts' number.
    json little = {{"model_type", "gpt_oss"}, {"num_hidden_layers", 24}, {"num_experts", 32}};
    EXPECT_EQ(parse(little).descriptions, preset.descriptions);
    little.erase("num_experts");
    EXPECT_EQ(*parse(little).experts(), gpt_oss_experts(128, 4, 2880));
}

TEST(HfConfigTest, RefusesExpertsThatAreNotServed) {
    const json good = json::parse(read_text(golden_path("qwen3_moe") + "/base/config.json"));
    const auto refusal = [&](const json& changes) { return config_refusal(with(good, changes)); };
    EXPECT_TRUE(has(refusal({{"mlp_only_layers", 1}}), "mlp_only_layers is 1, must be a list"));
    EXPECT_TRUE(has(refusal({{"decoder_sparse_step", 0}}), "decoder_sparse_step is 0"));
    EXPECT_TRUE(
        has(refusal({{"shared_expert_intermediate_size", 64}}), "experts that all tokens share"));
    EXPECT_TRUE(has(refusal({{"output_router_logits", true}}), "a loss that balances the router"));
    EXPECT_TRUE(has(refusal({{"use_sliding_window", true}}), "windows are not supported"));
    EXPECT_TRUE(has(refusal({{"num_experts_per_tok", 7}}), "num_experts_per_tok is 7"));
    EXPECT_TRUE(has(refusal({{"num_local_experts", 4096}}), "must be at most 1024"));
    EXPECT_TRUE(has(refusal({{"num_experts", 7}}), "num_experts is 7, but num_local_experts is 6"));
    EXPECT_TRUE(has(refusal({{"num_local_experts", 0}}), "num_local_experts is 0"));
    EXPECT_TRUE(has(refusal({{"model_type", "olmoe"}}), "qwen3_moe"));
}

TEST(HfConfigTest, LaterFamiliesInTheOlderSpelling) {
    for (const std::string family : {"smollm3", "granite", "seed_oss"}) {
        const ModelSpec older = parse(older_spelling(family));
        const ModelSpec newer = golden_model(family);
        EXPECT_EQ(older.attention().rope->theta, newer.attention().rope->theta);
        EXPECT_EQ(older.attention().rope->type, newer.attention().rope->type);
        EXPECT_EQ(layers_of(older), layers_of(newer));
    }
    json by_interval = older_spelling("smollm3");
    by_interval.erase("no_rope_layers");
    by_interval.erase("tie_word_embeddings");
    EXPECT_EQ(layers_of(parse(by_interval)), layers_of(golden_model("smollm3")));
    EXPECT_TRUE(parse(by_interval).tie_word_embeddings);
}

TEST(HfConfigTest, LayersWithoutRope) {
    const auto layers = [](const json& changes) {
        return layers_of(parse(with(config("smollm3"), changes)));
    };
    const auto every_fourth = layers(json::object());
    ASSERT_EQ(every_fourth.size(), 32U);
    for (std::size_t i = 0; i < 32; ++i) {
        EXPECT_EQ(every_fourth[i].attention().rope.has_value(), (i + 1) % 4 != 0);
    }
    EXPECT_TRUE(all_rotate(layers({{"no_rope_layer_interval", 33}})));
    const json ones(std::vector<int>(32, 1));
    EXPECT_TRUE(all_rotate(layers({{"no_rope_layers", ones}})));
    const auto refused = [](const json& list) {
        return refusal_with({{"no_rope_layers", list}}, "smollm3");
    };
    const char* rule =
        "must be a list with a 1 (rotary positions) or a 0 for each of the 32 layers";
    EXPECT_TRUE(has(refused({1, 0}), rule));
    EXPECT_TRUE(has(refused(3), rule));
    json odd = ones;
    odd[7] = 2;
    EXPECT_TRUE(has(refused(odd), rule));
    EXPECT_TRUE(has(refusal_with({{"no_rope_layer_interval", 0}}, "smollm3"),
                    "no_rope_layer_interval is 0"));
    EXPECT_TRUE(parse(with(config("llama"), {{"no_rope_layers", {0}}})).description_of.empty());
    EXPECT_EQ(parse(config("smollm3")).attention().rope->theta, 2e6);
}

TEST(HfConfigTest, MultipliersOfGranite) {
    const ModelSpec spec = parse(config("granite"));
    EXPECT_EQ(spec.attention().scale(), 1.0);
    EXPECT_EQ(spec.embedding_scale(), 1.0);
    EXPECT_EQ(spec.logits_scaling, 1.0);
    for (const char* key : {"embedding_multiplier", "attention_multiplier", "residual_multiplier",
                            "logits_scaling"}) {
        EXPECT_TRUE(has(refusal_with({{key, 0}}, "granite"), std::string(key) + " is 0"));
        EXPECT_TRUE(has(refusal_with({{key, "2"}}, "granite"), std::string(key) + " is \"2\""));
    }
    EXPECT_EQ(parse(with(config("llama"), {{"logits_scaling", 3}})).logits_scaling, 1.0);
}

TEST(HfConfigTest, BiasesOfSeedOss) {
    const auto biases = [](const json& changes) {
        const ModelSpec spec = parse(with(config("seed_oss"), changes));
        return std::array{spec.attention().qkv_bias, spec.attention().o_bias, spec.dense().bias};
    };
    EXPECT_EQ(biases(json::object()), (std::array{true, false, false}));
    EXPECT_EQ(biases({{"attention_bias", false}, {"attention_out_bias", true}, {"mlp_bias", true}}),
              (std::array{false, true, true}));
}

TEST(HfConfigTest, OlderSpelling) {
    const json older = {{"rope_theta", 500000.0},
                        {"torch_dtype", "bfloat16"},
                        {"architectures", {"LlamaForCausalLM"}}};
    EXPECT_EQ(parse(with(config("llama"), older)).attention().rope->theta, 500000.0);
    const json scaled = {{"rope_theta", 20000},
                         {"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}};
    const RopeSpec linear = *parse(with(config("llama"), scaled)).attention().rope;
    EXPECT_EQ(linear.type, RopeType::linear);
    EXPECT_EQ(linear.factor, 4.0);
    EXPECT_EQ(linear.theta, 20000.0);
    const json llama3 = {{"rope_scaling",
                          {{"rope_type", "llama3"},
                           {"factor", 8.0},
                           {"low_freq_factor", 1.0},
                           {"high_freq_factor", 4.0},
                           {"original_max_position_embeddings", 8192}}}};
    EXPECT_EQ(parse(with(config("llama"), llama3)).attention().rope->original_max_position, 8192);
    EXPECT_EQ(parse(config("llama")).attention().rope->theta, 10000.0);
}

TEST(HfConfigTest, NewerSpelling) {
    const json newer = {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7.0}}},
                        {"dtype", "bfloat16"}};
    EXPECT_EQ(parse(with(config("llama"), newer)).attention().rope->theta, 7.0);
    const json outer = {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2}}},
                        {"rope_theta", 9.0}};
    EXPECT_EQ(parse(with(config("llama"), outer)).attention().rope->theta, 9.0);
    const json only_theta = {{"rope_parameters", {{"rope_theta", 7.0}}}};
    EXPECT_EQ(parse(with(config("llama"), only_theta)).attention().rope->theta, 7.0);
    const json original = {{"original_max_position_embeddings", 4096},
                           {"rope_parameters",
                            {{"rope_type", "llama3"},
                             {"factor", 8.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0}}}};
    EXPECT_EQ(parse(with(config("llama"), original)).attention().rope->original_max_position, 4096);
}

TEST(HfConfigTest, BothSpellingsMustAgree) {
    json both = {
        {"rope_theta", 5.0},
        {"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5.0}}},
        {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}};
    EXPECT_EQ(parse(with(config("llama"), both)).attention().rope->factor, 2.0);
    both["rope_scaling"]["factor"] = 3.0;
    EXPECT_TRUE(has(refusal_with(both), "contradict each other"));
}

TEST(HfConfigTest, FamilyDefaults) {
    const auto without_kv = [](const std::string& family) {
        json document = config(family);
        document.erase("num_key_value_heads");
        document["num_attention_heads"] = 64;
        document["hidden_size"] = 256;
        document["sliding_window"] = nullptr;
        return parse(document).attention().kv_heads;
    };
    EXPECT_EQ(without_kv("llama"), 64);
    EXPECT_EQ(without_kv("mistral"), 8);
    EXPECT_EQ(without_kv("qwen2"), 32);
    json null_kv = config("mistral");
    null_kv["sliding_window"] = nullptr;
    null_kv["num_key_value_heads"] = nullptr;
    EXPECT_EQ(parse(null_kv).attention().kv_heads, 4);
    EXPECT_EQ(parse(config("llama")).attention().head_dim, 16);
    EXPECT_EQ(parse(config("qwen3")).attention().head_dim, 128);
    EXPECT_EQ(parse(config("llama")).rms_norm_eps, 1e-6);
    const json biases = {{"attention_bias", true}, {"mlp_bias", true}};
    const ModelSpec llama = parse(with(config("llama"), biases));
    EXPECT_TRUE(llama.attention().qkv_bias && llama.attention().o_bias && llama.dense().bias);
    const ModelSpec qwen3 = parse(with(config("qwen3"), biases));
    EXPECT_TRUE(qwen3.attention().qkv_bias && qwen3.attention().o_bias);
    EXPECT_FALSE(qwen3.dense().bias);
}

// As the config.json of google/gemma-3-4b-it has it: the class has the rest.
TEST(HfConfigTest, SizesOfTheClass) {
    const json gemma3 = {{"model_type", "gemma3"},
                         {"text_config",
                          {{"model_type", "gemma3_text"},
                           {"hidden_size", 2560},
                           {"intermediate_size", 10240},
                           {"num_hidden_layers", 34},
                           {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                           {"sliding_window", 1024}}}};
    const ModelSpec spec = parse(gemma3);
    EXPECT_EQ(spec.vocab_size, 262208);
    EXPECT_EQ(spec.attention().heads, 8);
    EXPECT_EQ(spec.attention().kv_heads, 4);
    EXPECT_EQ(spec.attention().head_dim, 256);
    EXPECT_EQ(spec.pad_token, 0);
    EXPECT_EQ(rope_of(spec).factor, 8.0);
    struct Class {
        const char* family;
        std::int64_t vocabulary, hidden, intermediate, layers, heads, kv_heads, head_dim, pad;
    };
    for (const Class& known : {Class{"llama", 32000, 4096, 11008, 32, 32, 32, 128, -1},
                               {"mistral", 32000, 4096, 14336, 32, 32, 8, 128, -1},
                               {"qwen2", 151936, 4096, 22016, 32, 32, 32, 128, -1},
                               {"qwen3", 151936, 4096, 22016, 32, 32, 32, 128, -1},
                               {"smollm3", 128256, 2048, 11008, 36, 16, 4, 128, 128004},
                               {"granite", 32000, 4096, 11008, 32, 32, 32, 128, -1},
                               {"seed_oss", 155136, 4096, 27648, 64, 80, 8, 128, 1},
                               {"ministral3", 131072, 4096, 14336, 34, 32, 8, 128, 11},
                               {"olmo2", 50304, 4096, 11008, 32, 32, 32, 128, 1},
                               {"olmo3", 50304, 4096, 11008, 32, 32, 32, 128, 1},
                               {"exaone4", 102400, 4096, 16384, 32, 32, 32, 128, -1},
                               {"hunyuan_v1_dense", 290943, 4096, 11008, 32, 32, 32, 128, 0},
                               {"gemma2", 256000, 2304, 9216, 26, 8, 4, 256, 0},
                               {"gemma3_text", 262208, 2304, 9216, 26, 8, 4, 256, 0},
                               {"glm4", 151552, 4096, 13696, 40, 32, 2, 128, 151329},
                               {"ernie4_5", 103424, 1024, 3072, 18, 16, 2, 128, 0},
                               {"phi3", 32064, 3072, 8192, 32, 32, 32, 96, 32000},
                               {"apertus", 131072, 4096, 14336, 32, 32, 32, 128, 3},
                               {"arcee", 32000, 2560, 18432, 32, 32, 32, 80, -1},
                               {"qwen3_moe", 151936, 2048, 6144, 24, 32, 4, 64, -1},
                               {"mixtral", 32000, 4096, 14336, 32, 32, 8, 128, -1},
                               {"granitemoe", 32000, 4096, 11008, 32, 32, 32, 128, -1},
                               {"qwen2_moe", 151936, 2048, 5632, 24, 16, 16, 128, -1},
                               {"gpt_oss", 201088, 2880, 2880, 36, 64, 8, 64, -1},
                               {"deepseek_v3", 129280, 7168, 18432, 61, 128, 128, 192, -1},
                               {"glm4_moe_lite", 154880, 2048, 10240, 47, 20, 20, 256, -1}}) {
        const ModelSpec model = parse({{"model_type", known.family}});
        EXPECT_EQ(model.vocab_size, known.vocabulary) << known.family;
        EXPECT_EQ(model.hidden_size, known.hidden) << known.family;
        if (model.experts() == nullptr) {
            EXPECT_EQ(model.dense().size, known.intermediate) << known.family;
        }
        EXPECT_EQ(model.layers, known.layers) << known.family;
        EXPECT_EQ(model.attention().heads, known.heads) << known.family;
        EXPECT_EQ(model.attention().kv_heads, known.kv_heads) << known.family;
        EXPECT_EQ(model.attention().head_dim, known.head_dim) << known.family;
        EXPECT_EQ(model.pad_token, known.pad) << known.family;
    }
    EXPECT_EQ(parse(with(config("gemma2"), {{"pad_token_id", 7}})).pad_token, 7);
    json null_pad = config("gemma2");
    null_pad["pad_token_id"] = nullptr;
    EXPECT_EQ(parse(null_pad).pad_token, -1);
}

json llama3_rope(const json& changes = json::object()) {
    return with({{"rope_type", "llama3"},
                 {"factor", 8.0},
                 {"low_freq_factor", 1.0},
                 {"high_freq_factor", 4.0}},
                changes);
}

TEST(HfConfigTest, OriginalPositionsWhereNothingSaysThem) {
    const auto original = [](const std::string& family, const json& changes) {
        return parse(with(config(family), changes)).attention().rope->original_max_position;
    };
    EXPECT_EQ(original("llama", {{"rope_scaling", llama3_rope()}}), 2048) << "of the class";
    EXPECT_EQ(
        original("llama", {{"rope_scaling", llama3_rope()}, {"max_position_embeddings", 512}}),
        512);
    EXPECT_EQ(original("qwen3", {{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}}}), 32768);
    const json null_factor = {
        {"rope_scaling",
         {{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 8192}}},
        {"max_position_embeddings", 65536}};
    json qwen3 = config("qwen3");
    qwen3.update(null_factor);
    EXPECT_EQ(parse(qwen3).attention().rope->factor, 8.0) << "of the positions";
}

TEST(HfConfigTest, RefusesTwoPlacesThatContradictEachOther) {
    const auto refused = [](const json& changes, const char* text,
                            const std::string& family = "llama") {
        EXPECT_TRUE(has(refusal_with(changes, family), text)) << refusal_with(changes, family);
    };
    json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
    json other = with(linear, {{"rope_theta", 1e6}});
    refused({{"rope_parameters", linear}, {"rope_scaling", other}},
            "contradict each other: rope_theta is 10000 and 1e+06");
    refused({{"rope_parameters", other}, {"rope_scaling", linear}}, "contradict each other");
    refused({{"rope_theta", 5.0}, {"rope_scaling", other}},
            "rope_scaling.rope_theta is 1000000.0, but rope_theta is 5.0");
    const char* original = "original_max_position_embeddings";
    refused({{original, 32}, {"rope_scaling", llama3_rope({{original, 64}})}},
            "rope_scaling.original_max_position_embeddings is 64, but "
            "original_max_position_embeddings is 32");
    refused({{"rope_scaling", with(linear, {{"type", "yarn"}})}},
            "rope_scaling.type is \"yarn\", but rope_type is \"linear\"");
    refused({{"partial_rotary_factor", 0.5},
             {"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}}},
            "partial_rotary_factor is 0.25, but partial_rotary_factor is 0.5", "glm4");
    refused({{"rope_theta", 7e5}}, "rope_parameters are missing, and rope_theta 700000.0",
            "apertus");
    EXPECT_EQ(parse(with(config("llama"), {{"rope_theta", 1000000},
                                           {"rope_scaling", json::object()},
                                           {"rope_parameters", other}}))
                  .attention()
                  .rope->theta,
              1e6);
}

TEST(HfConfigTest, RopesByTypeOfLayerThatContradict) {
    const json linear = {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 3e5}};
    const json by_type = {{"full_attention", linear}};
    const auto refused = [](const json& changes, const char* text) {
        EXPECT_TRUE(has(refusal_with(changes, "gemma3_text"), text))
            << refusal_with(changes, "gemma3_text");
    };
    refused({{"rope_parameters", linear}}, "rope_parameters must be {full_attention");
    refused({{"rope_parameters", by_type}, {"rope_theta", 7e5}},
            "rope_parameters.full_attention.rope_theta is 300000.0, but rope_theta is 700000.0");
    refused({{"rope_parameters", by_type}, {"rope_scaling", {{"factor", 4.0}}}},
            "rope_scaling.factor is 4.0, but rope_parameters.full_attention.factor is 8.0");
    refused({{"rope_parameters", {{"sliding_attention", {{"rope_theta", 5.0}}}}},
             {"rope_local_base_freq", 7.0}},
            "rope_parameters.sliding_attention.rope_theta is 5.0, but rope_local_base_freq is 7.0");
    const ModelSpec same = parse(with(
        config("gemma3_text"),
        {{"rope_parameters", by_type}, {"rope_scaling", {{"factor", 8.0}}}, {"rope_theta", 3e5}}));
    EXPECT_EQ(rope_of(same).factor, 8.0);
    EXPECT_EQ(rope_of(same).theta, 3e5);
    EXPECT_EQ(sliding_rope_of(same).theta, 1e4);
    // Of olmo3 transformers takes rope_theta for full attention alone.
    const ModelSpec olmo3 = parse(with(config("olmo3"), {{"rope_theta", 1e6}}));
    EXPECT_EQ(rope_of(olmo3).theta, 1e6);
    EXPECT_EQ(sliding_rope_of(olmo3).theta, 5e5);
}

TEST(HfConfigTest, RefusesUnreadableDocuments) {
    EXPECT_TRUE(has(problem_text([] { parse_hf_config("{\n\"a\": ", "config.json"); }),
                    "config.json:2: not valid JSON"));
    EXPECT_TRUE(
        has(problem_text([] { parse_hf_config("[]", "config.json"); }), "must be an object"));
    EXPECT_TRUE(has(problem_text([] { parse_hf_config(R"({"a":1,"a":2})", "config.json"); }),
                    "key 'a' is given twice"));
    const std::string deep(100000, '[');
    EXPECT_TRUE(has(problem_text([&] { parse_hf_config("{\"a\":" + deep, "config.json"); }),
                    "config.json: is nested more than 100 levels deep"));
}

TEST(HfConfigTest, RefusesOtherModels) {
    EXPECT_TRUE(has(config_refusal(config("nemotron_h")), "model_type is \"nemotron_h\""));
    json none = config("llama");
    none.erase("model_type");
    EXPECT_TRUE(has(config_refusal(none), "'model_type' is missing"));
    EXPECT_TRUE(has(refusal_with({{"model_type", 3}}), "must be a string"));
    EXPECT_TRUE(has(refusal_with({{"architectures", {"LlamaForSequenceClassification"}}}),
                    "must be [\"LlamaForCausalLM\"]"));
    EXPECT_TRUE(has(refusal_with({{"hidden_act", "gelu"}}), "hidden_act is \"gelu\""));
    EXPECT_TRUE(has(refusal_with({{"num_local_experts", 8}}), "num_local_experts is 8"));
    EXPECT_TRUE(has(refusal_with({{"num_experts", 8}}), "mixture of experts"));
    EXPECT_TRUE(has(refusal_with({{"n_routed_experts", 8}}), "n_routed_experts is 8"));
    EXPECT_TRUE(has(refusal_with({{"layer_types", {"full_attention", "linear_attention"}}}),
                    "every layer must have full_attention"));
}

TEST(HfConfigTest, ReadsQuantisationsThatItKnows) {
    const auto quantization = [](const json& settings, const char* dtype = "bfloat16") {
        json model = config("llama");
        model["dtype"] = dtype;
        model["quantization_config"] = settings;
        return parse_hf_config(model.dump(), "config.json").quantization;
    };
    const json nf4{{"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}};
    EXPECT_EQ(quantization(nf4), (Quantization{WeightFormat::nf4, SourceType::bf16}));
    EXPECT_EQ(quantization({{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}}, "float16"),
              (Quantization{WeightFormat::int8, SourceType::f16}));
    EXPECT_EQ(quantization({{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}, "float32"),
              (Quantization{WeightFormat::e4m3_block, SourceType::f32}));
    const json weights{{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}};
    const json groups{{"group_0", {{"weights", weights}}}};
    EXPECT_EQ(quantization({{"quant_method", "compressed-tensors"},
                            {"format", "float-quantized"},
                            {"config_groups", groups}}),
              (Quantization{WeightFormat::e4m3, SourceType::bf16}));
    EXPECT_FALSE(quantization(nullptr));
}

TEST(HfConfigTest, RefusesOtherQuantisationsByName) {
    const auto refused = [](const json& settings) {
        return refusal_with({{"quantization_config", settings}});
    };
    EXPECT_TRUE(has(refused({{"quant_method", "gptq"}, {"bits", 4}}),
                    "quantization_config.quant_method is \"gptq\""));
    EXPECT_TRUE(has(refused({{"bits", 4}}), "quantization_config.quant_method"));
    EXPECT_TRUE(has(refused(4), "quantization_config is 4, must be an object"));
    EXPECT_TRUE(has(refused({{"load_in_4bit", true}, {"bnb_4bit_quant_type", "fp4"}}),
                    "bnb_4bit_quant_type is \"fp4\", must be nf4"));
    EXPECT_TRUE(has(refused({{"load_in_4bit", true}}), "which means fp4"));
    EXPECT_TRUE(has(refused({{"quant_method", "bitsandbytes"}}), "neither load_in_4bit"));
    EXPECT_TRUE(has(refused({{"quant_method", "fp8"}, {"weight_block_size", {64, 128}}}),
                    "weight_block_size is [64,128]"));
    EXPECT_TRUE(has(refused({{"quant_method", "fp8"}}), "weight_block_size is missing"));
    json group{{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}};
    json settings{{"quant_method", "compressed-tensors"},
                  {"format", "float-quantized"},
                  {"config_groups", {{"group_0", {{"weights", group}}}}}};
    const std::string text = refused(settings);
    EXPECT_TRUE(has(text, "config_groups.group_0.weights.num_bits is 4, must be 8"));
    EXPECT_TRUE(has(text, "strategy is \"group\""));
    settings["format"] = "pack-quantized";
    EXPECT_TRUE(has(refused(settings), "format is \"pack-quantized\""));
}

/// Of the first and the last layer of 32; none where all layers are alike and without one.
std::array<std::int64_t, 2> sliding_windows(const std::string& family, const json& changes) {
    const ModelSpec spec = parse(with(config(family), changes));
    EXPECT_TRUE(spec.description_of.empty() || spec.description_of.size() == 32U);
    return {spec.layer(0).attention().sliding_window, spec.layer(31).attention().sliding_window};
}

using SlidingWindows = std::array<std::int64_t, 2>;

TEST(HfConfigTest, WindowsOfAllLayers) {
    EXPECT_EQ(sliding_windows("mistral", {{"sliding_window", 100}}), (SlidingWindows{100, 100}));
    EXPECT_EQ(sliding_windows("mistral", {{"vocab_size", 50}}), (SlidingWindows{4096, 4096}));
    json without = config("mistral");
    without["sliding_window"] = nullptr;
    EXPECT_TRUE(parse(without).description_of.empty());
    EXPECT_EQ(sliding_windows("llama", {{"sliding_window", 100}}), (SlidingWindows{0, 0}));
    EXPECT_TRUE(has(refusal_with({{"sliding_window", -1}}, "mistral"), "sliding_window is -1"));
}

TEST(HfConfigTest, WindowsOfLastLayers) {
    for (const std::string family : {"qwen2", "qwen3"}) {
        EXPECT_EQ(sliding_windows(family, {{"sliding_window", 100}}), (SlidingWindows{0, 0}));
        json changes = {{"sliding_window", 100}, {"use_sliding_window", true}};
        EXPECT_EQ(sliding_windows(family, changes), (SlidingWindows{0, 100}));
        changes["max_window_layers"] = 32;
        EXPECT_EQ(sliding_windows(family, changes), (SlidingWindows{0, 0}));
        changes["max_window_layers"] = 0;
        EXPECT_EQ(sliding_windows(family, changes), (SlidingWindows{100, 100}));
        changes["max_window_layers"] = 31;
        const ModelSpec spec = parse(with(config(family), changes));
        EXPECT_EQ(spec.layer(30).attention().sliding_window, 0);
        EXPECT_EQ(spec.layer(31).attention().sliding_window, 100);
        changes.erase("sliding_window");
        EXPECT_EQ(sliding_windows(family, changes), (SlidingWindows{0, 4096}));
    }
}

TEST(HfConfigTest, WindowsByLayerTypes) {
    const std::vector<std::string> full(32, "full_attention");
    std::vector<std::string> first = full;
    first[0] = "sliding_attention";
    json changes = {{"sliding_window", 100}, {"use_sliding_window", true}, {"layer_types", full}};
    for (const std::string family : {"qwen2", "qwen3", "smollm3"}) {
        changes["layer_types"] = full;
        EXPECT_EQ(sliding_windows(family, changes), (SlidingWindows{0, 0}));
        changes["layer_types"] = first;
        EXPECT_EQ(sliding_windows(family, changes), (SlidingWindows{100, 0}));
    }
    changes.erase("layer_types");
    const ModelSpec smollm3 = parse(with(config("smollm3"), changes));
    for (std::int64_t i = 0; i < 32; ++i) {
        EXPECT_EQ(smollm3.layer(i).attention().sliding_window,
                  smollm3.layer(i).attention().rope ? 0 : 100);
    }
    const auto refused = [&](const std::string& family, const json& types) {
        return refusal_with({{"layer_types", types}, {"sliding_window", 100}}, family);
    };
    EXPECT_TRUE(has(refused("qwen2", first), "names sliding_attention, but there is no"));
    EXPECT_TRUE(has(refused("mistral", full), "but sliding_window 100 is of every layer"));
    EXPECT_TRUE(has(refused("mistral", {"sliding_attention"}), "one for each of the 32 layers"));
    EXPECT_TRUE(has(refused("llama", first), "every layer must have full_attention"));
    EXPECT_TRUE(has(refused("qwen2", {"linear_attention"}), "or sliding_attention"));
}

TEST(HfConfigTest, GoldenWindows) {
    const ModelSpec mistral = golden_model("mistral_window");
    const ModelSpec qwen2 = golden_model("qwen2_window");
    EXPECT_EQ(mistral.layer(0).attention().sliding_window, 6);
    EXPECT_EQ(mistral.layer(1).attention().sliding_window, 6);
    EXPECT_EQ(qwen2.layer(0).attention().sliding_window, 0);
    EXPECT_EQ(qwen2.layer(1).attention().sliding_window, 9);
    EXPECT_EQ(qwen2.layer(2).attention().sliding_window, 9);
    EXPECT_EQ(layers_of(parse(older_spelling("qwen2_window"))), layers_of(qwen2));
}

TEST(HfConfigTest, Yarn) {
    json rope = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
    const auto read = [&] { return parse(with(config("qwen2"), {{"rope_scaling", rope}})); };
    ModelSpec spec = read();
    EXPECT_EQ(spec.attention().rope->type, RopeType::yarn);
    EXPECT_EQ(spec.attention().rope->original_max_position, 32768);
    EXPECT_EQ(spec.attention().rope->beta_fast, 32.0);
    EXPECT_EQ(spec.attention().rope->beta_slow, 1.0);
    EXPECT_TRUE(spec.attention().rope->truncate);
    EXPECT_DOUBLE_EQ(spec.attention().rope->attention_factor, 0.1 * std::log(4.0) + 1.0);
    EXPECT_DOUBLE_EQ(spec.attention().scale(), 0.25 * std::pow(0.1 * std::log(4.0) + 1.0, 2));
    AttentionSpec without_rope = spec.attention();
    without_rope.rope.reset();
    EXPECT_EQ(without_rope.scale(), 0.25);
    rope.merge_patch({{"mscale", 1}, {"mscale_all_dim", 1}, {"truncate", false}, {"beta_fast", 8}});
    spec = read();
    EXPECT_EQ(spec.attention().rope->attention_factor, 1.0);
    EXPECT_EQ(spec.attention().rope->beta_fast, 8.0);
    EXPECT_FALSE(spec.attention().rope->truncate);
    rope["attention_factor"] = 1.5;
    EXPECT_EQ(read().attention().rope->attention_factor, 1.5);
    rope.erase("factor");
    EXPECT_TRUE(has(refusal_with({{"rope_scaling", rope}}), "'rope_scaling.factor' is missing"));
}

TEST(HfConfigTest, RefusesRopeTypes) {
    EXPECT_TRUE(has(refusal_with({{"rope_scaling", {{"type", "longrope"}, {"factor", 2.0}}}}),
                    "longrope is not a setting of this family"));
    EXPECT_TRUE(has(refusal_with({{"rope_parameters", {{"rope_type", "dynamic"}}}}),
                    "rope_parameters.rope_type is \"dynamic\""));
    EXPECT_TRUE(has(refusal_with({{"rope_scaling", {{"type", "linear"}}}}),
                    "'rope_scaling.factor' is missing"));
    EXPECT_TRUE(has(refusal_with({{"rope_scaling", {{"factor", 2.0}}}}), "names no rope_type"));
    EXPECT_TRUE(has(refusal_with({{"rope_scaling", "x"}}), "must be an object"));
    EXPECT_TRUE(has(refusal_with({{"rope_theta", -1}}), "rope_theta is -1"));
    const json llama3 = {{"rope_scaling",
                          {{"rope_type", "llama3"},
                           {"factor", 8.0},
                           {"low_freq_factor", 4.0},
                           {"high_freq_factor", 4.0}}}};
    const std::string text = refusal_with(llama3);
    EXPECT_TRUE(has(text, "must be greater than low_freq_factor"));
    EXPECT_TRUE(
        has(refusal_with({{"partial_rotary_factor", 0.5}}), "partial_rotary_factor is 0.5"));
}

TEST(HfConfigTest, RefusesBadDimensions) {
    EXPECT_TRUE(has(refusal_with({{"hidden_size", 64.5}}), "hidden_size is 64.5"));
    EXPECT_TRUE(has(refusal_with({{"num_hidden_layers", 0}}), "num_hidden_layers is 0"));
    EXPECT_TRUE(has(refusal_with({{"num_hidden_layers", 2000000000}}),
                    "num_hidden_layers is 2000000000, must be at most 10000"));
    EXPECT_TRUE(has(refusal_with({{"vocab_size", -5}}), "vocab_size is -5"));
    EXPECT_TRUE(has(refusal_with({{"vocab_size", "5"}}), "vocab_size is \"5\""));
    EXPECT_TRUE(has(refusal_with({{"vocab_size", 1e300}}), "vocab_size is"));
    EXPECT_TRUE(
        has(refusal_with({{"num_key_value_heads", 3}}), "not a multiple of num_key_value_heads 3"));
    EXPECT_TRUE(has(refusal_with({{"hidden_size", 66}}), "not a multiple of num_attention_heads"));
    EXPECT_TRUE(has(refusal_with({{"head_dim", 7}}), "head_dim 7 is odd"));
    EXPECT_TRUE(has(refusal_with({{"rms_norm_eps", 0}}), "rms_norm_eps is 0"));
    EXPECT_TRUE(has(refusal_with({{"tie_word_embeddings", "yes"}}), "must be true or false"));
}

TEST(HfConfigTest, NamesEverythingAtOnce) {
    const std::string text = refusal_with({{"model_type", "olmoe"},
                                           {"num_local_experts", 8},
                                           {"hidden_act", "gelu"},
                                           {"hidden_size", 0},
                                           {"rope_scaling", {{"type", "longrope"}}}});
    for (const char* part :
         {"olmoe", "num_local_experts", "gelu", "hidden_size is 0", "longrope"}) {
        EXPECT_TRUE(has(text, part));
    }
}

}  // namespace
}  // namespace loratrain::test
