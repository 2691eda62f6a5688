#include "io/adapters/adapter_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/tensor.h"
#include "io/adapters/peft_config.h"
#include "io/files.h"
#include "io/tensor_names.h"
#include "support/golden_path.h"
#include "support/problems.h"
#include "unit/io/tiny_model.h"

namespace loratrain {
namespace {

using nlohmann::json;
using test::get;
using test::golden_path;
using test::has;
using test::problem_text;
using test::put;
using test::put_safetensors;
using test::RawTensors;
using test::TempDir;
using test::tiny_spec;

const FormTensor factor_a = lora_form().tensors[0];
const FormTensor factor_b = lora_form().tensors[1];

ModelSpec golden_spec(const std::string& family) {
    const std::string path = golden_path(family + "/base/config.json");
    return parse_hf_config(read_text(path), path);
}

class AdapterFileTest : public ::testing::Test {
  protected:
    AdapterFileTest() {
        adapter_.name = "math";
        adapter_.r = 2;
        adapter_.lora_alpha = 3.5;
        adapter_.targets = {true, false, false, false, false, false, true};
    }
    std::vector<NamedTensor> tensors() const {
        std::vector<NamedTensor> list;
        float value = 0.0F;
        for (const Linear linear : {Linear::q, Linear::down}) {
            const LinearShape shape = linear_shape(spec_, linear);
            for (const FormTensor& of_form : adapter_.form.tensors) {
                NamedTensor tensor{
                    peft_tensor_name(0, linear, of_form), tensor_shape(of_form, 2, shape), {}};
                for (std::int64_t i = 0; i < element_count(tensor.shape); ++i) {
                    tensor.values.push_back(value += 0.5F);
                }
                list.push_back(tensor);
            }
        }
        return list;
    }
    void write() const { write_adapter(dir(), adapter_, spec_, "some/model", tensors()); }
    void change_config(const json& changes) const {
        write();
        json config = json::parse(get(config_path()));
        config.merge_patch(changes);
        put(config_path(), config.dump());
    }
    std::string refusal() const {
        return problem_text([&] { AdapterFile(dir(), adapter_, spec_); });
    }
    std::string refusal_with(const json& changes) const {
        change_config(changes);
        return refusal();
    }
    std::string dir() const { return temp_.file("adapters/math"); }
    std::string config_path() const { return dir() + "/adapter_config.json"; }
    std::string weights_path() const { return dir() + "/adapter_model.safetensors"; }

    TempDir temp_;
    ModelSpec spec_ = tiny_spec();
    AdapterJob adapter_;
};

TEST_F(AdapterFileTest, SaysBesideTheTensorsHowTheBaseWasQuantised) {
    write();
    EXPECT_EQ(SafetensorsFile(weights_path()).metadata().count("base_quantization"), 0U);
    const std::string config = get(config_path());
    write_adapter(dir(), adapter_, spec_, "some/model", tensors(), "nf4 of bf16");
    EXPECT_EQ(SafetensorsFile(weights_path()).metadata().at("base_quantization"), "nf4 of bf16");
    EXPECT_EQ(get(config_path()), config);
    EXPECT_NO_THROW(AdapterFile(dir(), adapter_, spec_).check_values());
}

TEST_F(AdapterFileTest, ReadsWhatItWrites) {
    write();
    const AdapterFile file(dir(), adapter_, spec_);
    EXPECT_EQ(file.read(0, Linear::q, factor_a), tensors()[0].values);
    EXPECT_EQ(file.read(0, Linear::down, factor_b), tensors()[3].values);
    EXPECT_EQ(SafetensorsFile(weights_path()).metadata().at("format"), "pt");
}

TEST_F(AdapterFileTest, WritesTheConfigAsPeftDoes) {
    write();
    const std::string text = get(config_path());
    const json config = json::parse(text);
    EXPECT_EQ(config["peft_type"], "LORA");
    EXPECT_EQ(config["task_type"], "CAUSAL_LM");
    EXPECT_EQ(config["base_model_name_or_path"], "some/model");
    EXPECT_EQ(config["r"], 2);
    EXPECT_EQ(config["lora_alpha"], 3.5);
    EXPECT_EQ(config["target_modules"], (json{"down_proj", "q_proj"}));
    EXPECT_EQ(config["bias"], "none");
    EXPECT_EQ(text, config.dump(2) + "\n");
    adapter_.lora_alpha = 16.0;
    write();
    EXPECT_TRUE(json::parse(get(config_path()))["lora_alpha"].is_number_integer());
}

TEST_F(AdapterFileTest, ReadsAdaptersOfPeft) {
    for (const std::string& family : test::golden_families(
             {"deepseek_v3", "glm4_moe", "glm4_moe_lite", "llama_e4m3", "llama_e4m3_block",
              "llama_int8", "llama_nf4", "mistral_window", "phi3_window", "qwen2_moe",
              "qwen2_window", "qwen3_5", "qwen3_5_moe", "qwen3_moe_dense", "qwen3_moe_e4m3_block",
              "qwen3_next", "qwen3_yarn"})) {
        const ModelSpec spec = golden_spec(family);
        AdapterJob adapter;
        adapter.r = 3;
        adapter.lora_alpha = 12;
        adapter.targets = {};
        const Linear last = spec.attention().fused_qkv ? Linear::qkv : Linear::v;
        for (const Linear linear : {Linear::q, last}) {
            adapter.targets[static_cast<std::size_t>(linear)] = has_linear(spec, linear);
        }
        const std::string dir = golden_path(family + "/adapters/c_r3_qv/final");
        const AdapterFile file(dir, adapter, spec);
        const auto layer = spec.layers - 1;
        EXPECT_EQ(file.read(layer, last, factor_b).size(),
                  static_cast<std::size_t>(linear_shape(spec, last).out * 3));
        adapter.r = 4;
        adapter.lora_alpha = 8;
        adapter.targets.fill(true);
        EXPECT_NO_THROW(
            AdapterFile(golden_path(family + "/adapters/a_r4_all/init"), adapter, spec));
    }
}

TEST_F(AdapterFileTest, ReadsBf16) {
    write();
    RawTensors raw;
    for (const NamedTensor& tensor : tensors()) {
        std::vector<BFloat16> bits;
        for (const float value : tensor.values) bits.push_back(to_bfloat16(value));
        raw[tensor.name] = {"BF16", tensor.shape, test::bytes_of(bits)};
    }
    put_safetensors(weights_path(), raw);
    EXPECT_EQ(AdapterFile(dir(), adapter_, spec_).read(0, Linear::q, factor_b),
              tensors()[1].values);
    raw.begin()->second.dtype = "I16";
    put_safetensors(weights_path(), raw);
    EXPECT_TRUE(has(refusal(), "has dtype I16"));
}

TEST_F(AdapterFileTest, SettingsMustAgree) {
    const std::string text = refusal_with({{"r", 8},
                                           {"lora_alpha", 16},
                                           {"use_rslora", true},
                                           {"target_modules", {"q_proj", "v_proj"}}});
    EXPECT_TRUE(has(text, "adapter_config.json: r is 8, the job has 2"));
    EXPECT_TRUE(has(text, "lora_alpha is 16, the job has 3.5"));
    EXPECT_TRUE(has(text, "use_rslora is true, the job has false"));
    EXPECT_TRUE(has(text, "target_modules are [q_proj, v_proj], the job has [down_proj, q_proj]"));
    EXPECT_TRUE(has(text, "adapter 'math'"));
    EXPECT_TRUE(
        has(refusal_with({{"target_modules", "all-linear"}}), "target_modules are [down_proj, "));
    EXPECT_TRUE(has(refusal_with({{"target_modules", 3}}), "must be a list of names"));
    EXPECT_TRUE(has(refusal_with({{"r", nullptr}}), "r is null, the job has 2"));
}

TEST_F(AdapterFileTest, TargetsMayBeARegularExpression) {
    change_config({{"target_modules", ".*\\.(q_proj|down_proj)"}});
    EXPECT_NO_THROW(AdapterFile(dir(), adapter_, spec_));
}

/// As PEFT lists the targets of very small models; tiny_spec() has one layer.
TEST_F(AdapterFileTest, TargetsMayBeWholePaths) {
    const std::string q = "model.layers.0.self_attn.q_proj";
    const std::string down = "model.layers.0.mlp.down_proj";
    change_config({{"target_modules", {q, down}}});
    EXPECT_NO_THROW(AdapterFile(dir(), adapter_, spec_));
    EXPECT_TRUE(has(refusal_with({{"target_modules", {q}}}),
                    down + " has no LoRA, the job has rank 2 and scaling 1.75"));
    EXPECT_TRUE(has(refusal_with({{"target_modules", {q, down, "model.layers.0.mlp.up_proj"}}}),
                    "up_proj has rank 2 and scaling 1.75, the job has no LoRA"));
    EXPECT_TRUE(has(refusal_with({{"target_modules", {q, down}}, {"r", 3}}), q + " has rank 3"));
}

/// Beside LoRA on the embedding PEFT saves the base's own, which is read past.
TEST_F(AdapterFileTest, ReadsWhatIsOnTheEmbedding) {
    adapter_.targets_embedding = true;
    const LinearShape shape = linear_shape(spec_, Linear::embedding);
    const std::string path = "base_model.model.model.embed_tokens.";
    std::vector<NamedTensor> list = tensors();
    for (const FormTensor& of_form : adapter_.form.tensors) {
        NamedTensor tensor{peft_tensor_name(embedding_layer, Linear::embedding, of_form),
                           tensor_shape(of_form, 2, shape),
                           {}};
        tensor.values.assign(static_cast<std::size_t>(element_count(tensor.shape)), 0.25F);
        list.push_back(tensor);
    }
    EXPECT_EQ(list.back().name, path + "lora_embedding_B");
    NamedTensor base{path + "base_layer.weight", {shape.in, shape.out}, {}};
    base.values.assign(static_cast<std::size_t>(element_count(base.shape)), 1.0F);
    list.push_back(base);
    write_adapter(dir(), adapter_, spec_, "some/model", list);
    EXPECT_EQ(json::parse(get(config_path()))["target_modules"],
              (json{"down_proj", "embed_tokens", "q_proj"}));
    const AdapterFile file(dir(), adapter_, spec_);
    EXPECT_EQ(file.read(embedding_layer, Linear::embedding, factor_b), list[5].values);
    list.back().shape[0] += 1;
    list.back().values.resize(static_cast<std::size_t>(element_count(list.back().shape)));
    write_adapter(dir(), adapter_, spec_, "some/model", list);
    EXPECT_TRUE(has(refusal(), "the embedding was resized"));
    adapter_.targets_embedding = false;
    EXPECT_TRUE(has(refusal(), "embed_tokens"));
}

/// PEFT saves head and embedding beside any adapter whose base was resized.
TEST_F(AdapterFileTest, SaysWhatToDoWithAResizedEmbedding) {
    const std::string prefix = "base_model.model.";
    std::vector<NamedTensor> list = tensors();
    for (const std::string name : {"lm_head.weight", "model.embed_tokens.weight"}) {
        NamedTensor own{prefix + name, {spec_.vocab_size, spec_.hidden_size}, {}};
        own.values.assign(static_cast<std::size_t>(element_count(own.shape)), 1.0F);
        list.push_back(own);
    }
    write_adapter(dir(), adapter_, spec_, "some/model", list);
    const AdapterFile same_shape(dir(), adapter_, spec_);
    EXPECT_EQ(same_shape.read(0, Linear::q, factor_a), list[0].values);
    EXPECT_TRUE(has(problem_text([&] { same_shape.check_values(); }),
                    "lm_head.weight: is not trained here, and a running job does not compare"));
    for (NamedTensor* own : {&list[list.size() - 2], &list.back()}) {
        own->shape[0] += 2;
        own->values.resize(static_cast<std::size_t>(element_count(own->shape)));
    }
    write_adapter(dir(), adapter_, spec_, "some/model", list);
    const std::string text = refusal();
    EXPECT_TRUE(has(text, "lm_head.weight: has shape")) << text;
    EXPECT_TRUE(has(text, "embed_tokens.weight: has shape")) << text;
    EXPECT_TRUE(has(text, "that of the base is [")) << text;
    EXPECT_TRUE(has(text, "the embedding was resized: save the resized model")) << text;
    EXPECT_TRUE(has(text, "loratrain import-hf")) << text;
    EXPECT_FALSE(has(text, "is not a tensor of this adapter")) << text;
}

/// PEFT writes rows of tokens of a tied head twice then, and the embedding behind them.
TEST_F(AdapterFileTest, ReadsRowsOfTokensOfATiedHeadThatAreThereTwice) {
    spec_.tie_word_embeddings = true;
    adapter_.trainable_token_indices = {1, 3};
    adapter_.form = form_of(adapter_);
    const FormTensor rows = adapter_.form.tensors.back();
    const LinearShape shape = linear_shape(spec_, Linear::embedding);
    std::vector<NamedTensor> list;
    for (const Linear linear : {Linear::q, Linear::down}) {
        for (const FormTensor& of_form : lora_form().tensors) {
            list.push_back({peft_tensor_name(0, linear, of_form),
                            tensor_shape(of_form, 2, linear_shape(spec_, linear)),
                            {}});
        }
    }
    const std::string prefix = "base_model.model.";
    const std::string suffix = ".token_adapter.trainable_tokens_delta";
    for (const char* module : {"model.embed_tokens", "lm_head"}) {
        list.push_back({prefix + module + suffix, tensor_shape(rows, 2, shape), {}});
        list.push_back({prefix + module + ".token_adapter.base_layer.weight",
                        {spec_.vocab_size, spec_.hidden_size},
                        {}});
    }
    for (NamedTensor& tensor : list) {
        tensor.values.assign(static_cast<std::size_t>(element_count(tensor.shape)), 0.5F);
    }
    write_adapter(dir(), adapter_, spec_, "some/model", list);
    EXPECT_EQ(AdapterFile(dir(), adapter_, spec_).read(embedding_layer, Linear::embedding, rows),
              std::vector<float>(static_cast<std::size_t>(2 * spec_.hidden_size), 0.5F));
    list[6].values.back() = 0.25F;
    write_adapter(dir(), adapter_, spec_, "some/model", list);
    EXPECT_TRUE(has(refusal(), "lm_head" + suffix + ": has other values than"));
    list[6].shape = {1, spec_.hidden_size};
    list[6].values.resize(static_cast<std::size_t>(spec_.hidden_size));
    write_adapter(dir(), adapter_, spec_, "some/model", list);
    EXPECT_TRUE(has(refusal(), "lm_head" + suffix + ": has shape [1, "));
}

TEST_F(AdapterFileTest, RefusesVariants) {
    EXPECT_TRUE(has(refusal_with({{"peft_type", "IA3"}}), "peft_type is \"IA3\""));
    EXPECT_TRUE(has(refusal_with({{"use_dora", true}}), "use_dora is true"));
    EXPECT_TRUE(has(refusal_with({{"lora_bias", true}}), "lora_bias is true"));
    EXPECT_TRUE(
        has(refusal_with({{"modules_to_save", {"lm_head"}}}), "modules_to_save is [\"lm_head\"]"));
    EXPECT_TRUE(has(refusal_with({{"bias", "all"}}), "bias is \"all\""));
    EXPECT_TRUE(has(refusal_with({{"fan_in_fan_out", true}}), "fan_in_fan_out is true"));
    for (const char* init : {"pissa_niter_4", "PiSSA", "OLoRA"}) {
        EXPECT_TRUE(has(refusal_with({{"init_lora_weights", init}}), "changes the base weights"));
    }
    EXPECT_NO_THROW({
        change_config({{"init_lora_weights", "gaussian"}, {"loftq_config", json::object()}});
        AdapterFile(dir(), adapter_, spec_);
    });
}

/// tiny_spec() has one layer.
TEST_F(AdapterFileTest, ModulesMustAgree) {
    const std::string q = "model.layers.0.self_attn.q_proj has ";
    EXPECT_TRUE(has(refusal_with({{"rank_pattern", {{"q_proj", 4}}}}),
                    q + "rank 4 and scaling 0.875, the job has rank 2 and scaling 1.75"));
    EXPECT_TRUE(has(refusal_with({{"alpha_pattern", {{".*q_proj", 4}}}}),
                    q + "rank 2 and scaling 2, the job has rank 2 and scaling 1.75"));
    EXPECT_TRUE(has(refusal_with({{"exclude_modules", {"q_proj"}}}),
                    q + "no LoRA, the job has rank 2 and scaling 1.75"));
    EXPECT_TRUE(has(refusal_with({{"layers_to_transform", {1}}}), q + "no LoRA"));
    EXPECT_TRUE(has(refusal_with({{"layers_to_transform", 1}}), q + "no LoRA"));
    EXPECT_TRUE(has(refusal_with({{"rank_pattern", {{"(", 4}}}}), "rank_pattern is {\"(\":4}"));
    EXPECT_TRUE(has(refusal_with({{"layers_to_transform", {"x"}}}), "which cannot be read"));
    change_config({{"layers_to_transform", {0}}, {"rank_pattern", {{"k_proj", 9}}}});
    EXPECT_NO_THROW(AdapterFile(dir(), adapter_, spec_));
    ModuleKeys keys;
    keys.rank_pattern = {{"q_proj", 4}};
    adapter_.modules = std::make_shared<const ModuleTable>(keys, adapter_.targets);
    EXPECT_TRUE(has(refusal(), q + "rank 2 and scaling 1.75, the job has rank 4"));
}

/// Once for a directory that several adapters begin with.
TEST_F(AdapterFileTest, NamesPatternsThatMatchNothing) {
    change_config({{"rank_pattern", {{"q_prj", 8}}}});
    adapter_.init_from = dir();
    EXPECT_NO_THROW(AdapterFile(dir(), adapter_, spec_));
    testing::internal::CaptureStderr();
    warn_of_dead_rules({adapter_, adapter_}, spec_);
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(has(text, "rank_pattern: 'q_prj' matches no target"));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(AdapterFileTest, WritesModulesByNamesAlone) {
    const auto config_of = [&](const ModuleKeys& keys, std::int64_t layers) {
        adapter_.modules = std::make_shared<const ModuleTable>(keys, adapter_.targets);
        return json::parse(peft_config_text(adapter_, "some/model", spec_, layers));
    };
    adapter_.lora_alpha = 8;
    json config = config_of({.rank_pattern = {{".*q_proj", 4}, {"up_proj", 9}},
                             .alpha_pattern = {{R"(.*\.1\.mlp\..*)", 3}}},
                            2);
    EXPECT_EQ(config["target_modules"], (json{"down_proj", "q_proj"}));
    EXPECT_EQ(config["rank_pattern"], (json{{"q_proj", 4}}));
    EXPECT_EQ(config["alpha_pattern"], (json{{"model.layers.1.mlp.down_proj", 3}}));
    EXPECT_EQ(config["layers_to_transform"], nullptr);
    config = config_of({.layers_to_transform = {2, 0}}, 3);
    EXPECT_EQ(config["target_modules"], (json{"down_proj", "q_proj"}));
    EXPECT_EQ(config["layers_to_transform"], (json{0, 2}));
    config = config_of({.target_regex = R"(.*\.(0\.mlp\.up|1\.self_attn\.k)_proj)"}, 2);
    EXPECT_EQ(config["target_modules"],
              (json{"model.layers.0.mlp.up_proj", "model.layers.1.self_attn.k_proj"}));
    config = config_of({.exclude_modules = {"q_proj"}}, 2);
    EXPECT_EQ(config["target_modules"], json::array({"down_proj"}));
}

TEST_F(AdapterFileTest, ChecksEveryTensor) {
    write();
    auto list = tensors();
    list[0].shape = {4, 4};
    list[1].name = "base_model.model.model.layers.9.self_attn.q_proj.lora_B.weight";
    write_safetensors(weights_path(), list);
    const std::string text = refusal();
    EXPECT_TRUE(has(text, "q_proj.lora_A.weight: has shape [4, 4], the job needs [2, 8]"));
    EXPECT_TRUE(has(text, "layers.0.self_attn.q_proj.lora_B.weight: tensor is missing"));
    EXPECT_TRUE(
        has(text, "layers.9.self_attn.q_proj.lora_B.weight: is not a tensor of this adapter"));
}

TEST_F(AdapterFileTest, RefusesValuesThatAreNotFinite) {
    auto list = tensors();
    list[0].values[3] = std::numeric_limits<float>::quiet_NaN();
    list[3].values[0] = -std::numeric_limits<float>::infinity();
    write_adapter(dir(), adapter_, spec_, "some/model", list);
    const AdapterFile file(dir(), adapter_, spec_);
    const std::string text = problem_text([&] { file.check_values(); });
    EXPECT_TRUE(has(text, "layers.0.self_attn.q_proj.lora_A.weight: element 3 is nan"));
    EXPECT_TRUE(has(text, "layers.0.mlp.down_proj.lora_B.weight: element 0 is -inf"));
    EXPECT_THROW(file.read(0, Linear::q, factor_a), InputError);
    EXPECT_NO_THROW(file.read(0, Linear::q, factor_b));
}

TEST_F(AdapterFileTest, RefusesIncompleteDirectories) {
    EXPECT_TRUE(has(refusal(), "math: is not a directory"));
    write();
    std::filesystem::remove(config_path());
    std::filesystem::remove(weights_path());
    EXPECT_TRUE(has(refusal(),
                    "math: has no adapter_config.json and no adapter_model.safetensors\n"
                    "    give a directory that PEFT or loratrain has written"));
    put(dir() + "/adapter_model.bin", "x");
    EXPECT_TRUE(has(refusal(), "has adapter_model.bin only"));
    write();
    put(config_path(), "[1]");
    EXPECT_TRUE(has(refusal(), "adapter_config.json: holds an array"));
    put(config_path(), "{\"r\"");
    EXPECT_TRUE(has(refusal(), "adapter_config.json:1: not valid JSON"));
    write();
    put(weights_path(), get(weights_path()).substr(0, 400));
    EXPECT_TRUE(has(refusal(), "adapter_model.safetensors: header of"));
}

TEST_F(AdapterFileTest, UnwritableDirectoryIsNamed) {
    put(temp_.file("adapters"), "");
    EXPECT_TRUE(has(problem_text([&] { write(); }), "adapters/math: directory cannot be created"));
}

}  // namespace
}  // namespace loratrain
