#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/model_presets.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "io/weights/base_weights.h"
#include "io/weights/hf_config.h"
#include "io/weights/hf_notes.h"
#include "io/weights/import_hf.h"
#include "support/golden_path.h"
#include "support/problems.h"
#include "unit/io/tiny_model.h"

namespace loratrain::test {
namespace {

using nlohmann::json;

/// What all published ones have in text_config.
json hybrid_text(const char* type, std::int64_t layers, const json& sizes) {
    json config = json::parse(R"({"attention_bias": false, "attention_dropout": 0.0,
        "attn_output_gate": true, "dtype": "bfloat16", "eos_token_id": 248044,
        "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu",
        "initializer_range": 0.02, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144, "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": false, "rms_norm_eps": 1e-06, "use_cache": true,
        "vocab_size": 248320, "rope_parameters": {"mrope_interleaved": true,
        "mrope_section": [11, 11, 10], "rope_type": "default", "rope_theta": 10000000,
        "partial_rotary_factor": 0.25}})");
    config["model_type"] = type;
    config["num_hidden_layers"] = layers;
    for (std::int64_t l = 1; l <= layers; ++l) {
        config["layer_types"].push_back(l % 4 == 0 ? "full_attention" : "linear_attention");
    }
    config.merge_patch(sizes);
    return config;
}

json hybrid_around(const char* type, const char* architecture, const json& text) {
    json config = json::parse(R"({"image_token_id": 248056, "video_token_id": 248057,
        "vision_start_token_id": 248053, "vision_end_token_id": 248054,
        "transformers_version": "4.57.0.dev0", "vision_config": {"depth": 27,
        "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 4304,
        "num_heads": 16, "out_hidden_size": 2560, "patch_size": 16, "spatial_merge_size": 2,
        "deepstack_visual_indexes": []}})");
    config["model_type"] = config["vision_config"]["model_type"] = type;
    config["architectures"] = {architecture};
    config["text_config"] = text;
    config["tie_word_embeddings"] = text.value("tie_word_embeddings", false);
    return config;
}

json qwen35_4b() {
    return hybrid_around("qwen3_5", "Qwen3_5ForConditionalGeneration",
                         hybrid_text("qwen3_5_text", 32,
                                     json::parse(R"({"hidden_size": 2560, "intermediate_size": 9216,
        "num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_value_heads": 32,
        "mlp_only_layers": [], "tie_word_embeddings": true})")));
}

json qwen36_35b() {
    return hybrid_around("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration",
                         hybrid_text("qwen3_5_moe_text", 40,
                                     json::parse(R"({"hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 2, "linear_num_value_heads": 32, "num_experts": 256,
        "num_experts_per_tok": 8, "moe_intermediate_size": 512, "mlp_only_layers": [],
        "shared_expert_intermediate_size": 512, "router_aux_loss_coef": 0.001,
        "output_router_logits": false, "partial_rotary_factor": 0.25, "pad_token_id": null})")));
}

/// With keys that 3.5 does not have yet.
json qwen38_27b() {
    json config =
        hybrid_around("qwen3_5", "Qwen3_5ForConditionalGeneration",
                      hybrid_text("qwen3_5_text", 64,
                                  json::parse(R"({"hidden_size": 5120, "intermediate_size": 17408,
        "num_attention_heads": 24, "num_key_value_heads": 4, "linear_num_value_heads": 48,
        "output_gate_type": "swish", "pad_token_id": null, "partial_rotary_factor": 0.25,
        "bos_token_id": 248044, "tie_word_embeddings": false})")));
    config["language_model_only"] = false;
    config["eos_token_id"] = {248046, 248044};
    config["generation_config"] = {{"temperature", 1.0}, {"top_k", 20}};
    config["transformers_version"] = "5.8.0.dev0";
    return config;
}

std::string hybrid_refusal(json config, const json& changes) {
    config["text_config"].merge_patch(changes);
    return problem_text([&] { parse_hf_config(config.dump(), "config.json"); });
}

TEST(HfHybridsTest, PublishedConfigsArePresets) {
    const std::pair<json, const char*> published[] = {{qwen35_4b(), "qwen3.5-4b"},
                                                      {qwen36_35b(), "qwen3.6-35b-a3b"},
                                                      {qwen38_27b(), "qwen3.5-27b"}};
    for (const auto& [config, name] : published) {
        const ModelSpec spec = parse_hf_config(config.dump(), "config.json");
        ModelSpec preset = *model_preset(name);
        EXPECT_EQ(spec.wrapper, config["model_type"].get<std::string>());
        EXPECT_EQ(spec.family, preset.family);
        EXPECT_EQ(spec.hidden_size, preset.hidden_size);
        EXPECT_EQ(spec.vocab_size, preset.vocab_size);
        EXPECT_EQ(spec.tie_word_embeddings, preset.tie_word_embeddings);
        EXPECT_EQ(spec.layers, preset.layers);
        for (std::int64_t l = 0; l < spec.layers; ++l) EXPECT_EQ(spec.layer(l), preset.layer(l));
        const std::vector<std::string> notes = hf_config_notes(config.dump());
        ASSERT_EQ(notes.size(), 1) << notes.front();
        EXPECT_TRUE(has(notes[0], "mtp_num_hidden_layers 1: layers behind the last"));
        EXPECT_EQ(end_tokens_of(config.dump()), std::vector<std::int32_t>{248044});
        EXPECT_EQ(max_positions_of(config.dump()), 262144);
    }
}

/// Of text_config alone, in the spelling of transformers 5, and without what says the defaults.
TEST(HfHybridsTest, TextModelsAlone) {
    for (const json& whole : {qwen35_4b(), qwen36_35b(), qwen38_27b()}) {
        const ModelSpec inside = parse_hf_config(whole.dump(), "config.json");
        json text = whole["text_config"];
        text["architectures"] = {inside.family == "qwen3_5_text" ? "Qwen3_5ForCausalLM"
                                                                 : "Qwen3_5MoeForCausalLM"};
        for (const char* key : {"layer_types", "partial_rotary_factor", "attn_output_gate"}) {
            text.erase(key);
        }
        text["rope_parameters"].erase("partial_rotary_factor");
        const ModelSpec alone = parse_hf_config(text.dump(), "config.json");
        EXPECT_TRUE(alone.wrapper.empty());
        EXPECT_EQ(alone.descriptions, inside.descriptions);
        EXPECT_EQ(alone.tie_word_embeddings, inside.tie_word_embeddings);
    }
    const ModelSpec bare = parse_hf_config(R"({"model_type": "qwen3_5_moe_text"})", "config.json");
    EXPECT_EQ(bare.experts()->size, 512);
    EXPECT_EQ(bare.experts()->shared_size, 512);
    EXPECT_TRUE(bare.experts()->normalised && bare.experts()->shared_gate);
    EXPECT_EQ(bare.layers, 40);
}

TEST(HfHybridsTest, OtherKindsAreRefused) {
    EXPECT_TRUE(has(hybrid_refusal(qwen38_27b(), {{"output_gate_type", "sigmoid"}}),
                    "output_gate_type is \"sigmoid\", only silu is supported"));
    EXPECT_TRUE(has(hybrid_refusal(qwen35_4b(), {{"attn_output_gate", false}}),
                    "attn_output_gate is false, must be true"));
    EXPECT_TRUE(has(hybrid_refusal(qwen35_4b(), {{"num_experts", 8}}), "a mixture of experts"));
    EXPECT_TRUE(has(hybrid_refusal(qwen36_35b(), {{"output_router_logits", true}}),
                    "asks for a loss that balances the router"));
    EXPECT_TRUE(has(hybrid_refusal(qwen36_35b(), {{"partial_rotary_factor", 0.5}}),
                    "partial_rotary_factor"));
    EXPECT_TRUE(has(hybrid_refusal(qwen36_35b(), {{"layer_types", {"qwen_sparse_attention"}}}),
                    "every layer must have full_attention or linear_attention"));
}

class HfHybridImport : public ::testing::Test {
  protected:
    HfHybridImport() {
        std::filesystem::create_directories(hf());
        for (const auto& [name, entry] : original_.entries()) {
            tensors_.push_back({name, entry.shape, original_.read_floats(name)});
        }
        import_hf(golden_path("qwen3_5_moe/base"), golden_, {});
    }

    std::string hf() const { return dir_.file("hf"); }

    /// Imports `tensors_` and compares what comes out with the golden model.
    ImportReport expect_golden(const json& config) {
        put(hf() + "/config.json", config.dump());
        if (!std::filesystem::exists(hf() + "/model.safetensors.index.json")) {
            write_safetensors(hf() + "/model.safetensors", tensors_);
        }
        const std::string out = dir_.file("out.h5");
        ImportReport report = import_hf(hf(), out, {.force = true});
        const auto golden = open_base_weights(golden_);
        const auto weights = open_base_weights(out);
        EXPECT_EQ(weights->spec().descriptions, golden->spec().descriptions);
        for (const BaseTensor& tensor : base_tensors(golden->spec())) {
            EXPECT_EQ(read_all(*weights, tensor), read_all(*golden, tensor)) << tensor.name;
        }
        return report;
    }

    void add_further_layers() {
        for (const char* name : {"mtp.layers.0.mlp.experts.gate_up_proj",
                                 "mtp.layers.0.mlp.experts.down_proj", "mtp.embed_tokens.weight"}) {
            tensors_.push_back({name, {6, 2, 3}, std::vector<float>(36, 1.0F)});
        }
        tensors_.push_back({"mtp.layers.0.self_attn.q_proj.weight", {1, 1}, {1.0F}});
        config_["text_config"]["mtp_num_hidden_layers"] = 1;
    }

    /// As the class of the text model writes it.
    json text_alone() const {
        json text = config_["text_config"];
        text["architectures"] = {"Qwen3_5MoeForCausalLM"};
        return text;
    }

    TempDir dir_;
    SafetensorsFile original_{golden_path("qwen3_5_moe/base/model.safetensors")};
    json config_ = json::parse(read_text(golden_path("qwen3_5_moe/base/config.json")));
    std::vector<NamedTensor> tensors_;
    std::string golden_ = dir_.file("golden.h5");
};

TEST_F(HfHybridImport, LeavesOutPicturesAndFurtherLayers) {
    const auto before = std::ssize(tensors_);
    add_further_layers();
    const ImportReport report = expect_golden(config_);
    EXPECT_EQ(report.wrapper, "qwen3_5_moe");
    std::int64_t fused = 0;  // two tensors of a layer are three of each expert
    for (const NamedTensor& tensor : tensors_) fused += has(tensor.name, "language_model") ? 1 : 0;
    EXPECT_EQ(report.ignored, std::ssize(tensors_) - fused - 1) << "and the head is no other";
    EXPECT_GT(report.ignored, std::ssize(tensors_) - before);
    EXPECT_TRUE(has(report.notes.back(), "mtp_num_hidden_layers 1"));
}

/// Shards of what is not trained need not be downloaded; what is trained must be there.
TEST_F(HfHybridImport, ShardsOfOtherPartsMayBeMissing) {
    json map = json::object();
    std::vector<NamedTensor> text;
    for (const NamedTensor& tensor : tensors_) {
        const bool other = has(tensor.name, "visual");
        map[tensor.name] = other ? "pictures.safetensors" : "text.safetensors";
        if (!other) text.push_back(tensor);
    }
    map["mtp.layers.0.self_attn.q_proj.weight"] = "text.safetensors";
    put(hf() + "/model.safetensors.index.json", json{{"weight_map", map}}.dump());
    write_safetensors(hf() + "/text.safetensors", text);
    expect_golden(config_);
    map["model.language_model.layers.3.input_layernorm.weight"] = "text.safetensors";
    put(hf() + "/model.safetensors.index.json", json{{"weight_map", map}}.dump());
    EXPECT_TRUE(has(problem_text([&] { expect_golden(config_); }),
                    "layers.3.input_layernorm.weight: tensor is missing, the index says"));
}

/// Also where a wrapper's words stand before all names, of the text model as of other parts.
TEST_F(HfHybridImport, ShardsOfWrappedModelsAreJudgedByUsualNames) {
    json map = json::object();
    std::vector<NamedTensor> text;
    for (NamedTensor tensor : tensors_) {
        const bool other = has(tensor.name, "visual");
        tensor.name = "_orig_mod." + tensor.name;
        map[tensor.name] = other ? "pictures.safetensors" : "text.safetensors";
        if (!other) text.push_back(tensor);
    }
    map["_orig_mod.mtp.layers.0.self_attn.q_proj.weight"] = "further.safetensors";
    put(hf() + "/model.safetensors.index.json", json{{"weight_map", map}}.dump());
    write_safetensors(hf() + "/text.safetensors", text);
    expect_golden(config_);
    const std::string lost = "_orig_mod.model.language_model.layers.3.input_layernorm.weight";
    map[lost] = "lost.safetensors";
    put(hf() + "/model.safetensors.index.json", json{{"weight_map", map}}.dump());
    EXPECT_TRUE(has(problem_text([&] { expect_golden(config_); }), "lost.safetensors"));
}

/// What save_pretrained of Qwen3_5MoeForCausalLM writes, and the names of the whole model beside
/// the config of the text model, which that class loads too.
TEST_F(HfHybridImport, TextModelAlone) {
    add_further_layers();
    EXPECT_TRUE(expect_golden(text_alone()).wrapper.empty());
    constexpr std::string_view inner = "language_model.";
    std::erase_if(tensors_, [](const NamedTensor& tensor) {
        return has(tensor.name, "visual") || has(tensor.name, "mtp");
    });
    for (NamedTensor& tensor : tensors_) {
        const std::size_t at = tensor.name.find(inner);
        if (at != std::string::npos) tensor.name.erase(at, inner.size());
    }
    EXPECT_TRUE(expect_golden(text_alone()).wrapper.empty());
}

/// Which transformers writes, while the published files have two tensors of a layer.
TEST_F(HfHybridImport, ExpertsAsTensorsOfEach) {
    std::vector<NamedTensor> each;
    for (const NamedTensor& tensor : tensors_) {
        const std::size_t end = tensor.name.find(".experts.") + 9;
        const bool down = has(tensor.name, ".experts.down_proj");
        if (!down && !has(tensor.name, ".experts.gate_up_proj")) {
            each.push_back(tensor);
            continue;
        }
        auto values = tensor.values.begin();
        for (std::int64_t e = 0; e < tensor.shape[0]; ++e) {
            for (const char* linear : {"gate_proj", "up_proj", "down_proj"}) {
                if (down != (std::string(linear) == "down_proj")) continue;
                const std::int64_t rows = tensor.shape[1] / (down ? 1 : 2);
                const std::int64_t size = rows * tensor.shape[2];
                each.push_back(
                    {tensor.name.substr(0, end) + std::to_string(e) + "." + linear + ".weight",
                     {rows, tensor.shape[2]},
                     std::vector<float>(values, values + size)});
                values += size;
            }
        }
    }
    ASSERT_GT(each.size(), tensors_.size());
    tensors_ = each;
    expect_golden(config_);
}

}  // namespace
}  // namespace loratrain::test
