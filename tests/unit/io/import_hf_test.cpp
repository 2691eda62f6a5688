#include "io/weights/import_hf.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <chrono>
#include <thread>

#include <csignal>
#include <limits>

#include "io/files.h"
#include "io/safetensors.h"
#include "io/weights/base_weights.h"
#include "io/weights/hf_config.h"
#include "support/golden_path.h"
#include "support/problems.h"
#include "unit/io/tiny_model.h"

namespace loratrain {
namespace {

using nlohmann::json;
using test::bytes_of;
using test::has;
using test::problem_text;
using test::put;
using test::put_model;
using test::put_safetensors;
using test::RawTensors;
using test::read_all;
using test::TempDir;
using test::tiny_config;
using test::tiny_spec;
using test::tiny_tensors;
using test::tiny_value;
using test::tiny_values;

std::string golden_base(const std::string& family) {
    return test::golden_path(family) + "/base";
}

/// The part of the checksum that is not of config.json.
std::string tensor_checksum(const std::string& path) {
    return open_base_weights(path)->checksum().substr(0, 16);
}

class ImportHfTest : public ::testing::Test {
  protected:
    void put_tiny(const RawTensors& tensors, const json& config = tiny_config()) {
        put_model(hf(), config, tensors);
    }
    /// Sharded: tensors alternate between two files.
    void put_sharded(const json& weight_map_changes = json::object()) {
        RawTensors shards[2];
        json map = json::object();
        std::size_t i = 0;
        for (const auto& [name, tensor] : tiny_tensors(tiny_spec())) {
            shards[i % 2][name] = tensor;
            map[name] = shard_name(i++ % 2);
        }
        map.merge_patch(weight_map_changes);
        std::filesystem::create_directories(hf());
        put(hf() + "/config.json", tiny_config().dump());
        put(hf() + "/model.safetensors.index.json", json{{"weight_map", map}}.dump());
        for (std::size_t k = 0; k < 2; ++k) put_safetensors(hf() + "/" + shard_name(k), shards[k]);
    }
    static std::string shard_name(std::size_t i) {
        return "model-0000" + std::to_string(i + 1) + "-of-00002.safetensors";
    }
    std::string hf() const { return dir_.file("hf"); }
    std::string out() const { return dir_.file("base.h5"); }
    ImportReport import(const ImportOptions& options = {}) const {
        return import_hf(hf(), out(), options);
    }
    /// What the import is refused with; nothing may be left behind.
    std::string refusal(const ImportOptions& options = {}) const {
        std::string text = problem_text([&] { import(options); });
        EXPECT_EQ(dir_.names(), std::vector<std::string>{"hf"});
        return text;
    }

    TempDir dir_;
};

TEST_F(ImportHfTest, GoldenModelsComeOutAsTheyWere) {
    for (
        const std::string& family : test::golden_families(
            {"deepseek_v3",   "gemma3",         "glm4_moe",    "glm4_moe_lite",        "gpt_oss",
             "gpt_oss_mxfp4", "granitemoe",     "llama_e4m3",  "llama_e4m3_block",     "llama_int8",
             "llama_nf4",     "mistral_window", "mixtral",     "phi3_window",          "qwen2_5_vl",
             "qwen2_window",  "qwen3_5",        "qwen3_5_moe", "qwen3_moe_e4m3_block", "qwen3_next",
             "qwen3_vl",      "qwen3_yarn"})) {
        const ImportReport report = import_hf(golden_base(family), out(), {.force = true});
        const auto weights = open_base_weights(out());
        const SafetensorsFile original(golden_base(family) + "/model.safetensors");
        EXPECT_TRUE(family.starts_with(report.family)) << report.family;
        EXPECT_EQ(weights->spec().family, report.family);
        const auto tensors = base_tensors(weights->spec());
        EXPECT_EQ(report.tensors, static_cast<std::int64_t>(tensors.size()));
        std::uint64_t bytes = 0;
        for (const BaseTensor& tensor : tensors) {
            EXPECT_EQ(read_all(*weights, tensor), original.read_floats(tensor.name)) << tensor.name;
            bytes += original.read_floats(tensor.name).size() * 4;
        }
        EXPECT_EQ(report.bytes, bytes);
    }
}

TEST_F(ImportHfTest, LayersThatPredictFurtherTokensAreLeftOut) {
    json config = json::parse(read_text(golden_base("glm4_moe") + "/config.json"));
    const SafetensorsFile original(golden_base("glm4_moe") + "/model.safetensors");
    std::vector<NamedTensor> tensors;
    for (const auto& [name, entry] : original.entries()) {
        tensors.push_back({name, entry.shape, original.read_floats(name)});
        if (!has(name, "layers.3.")) continue;
        tensors.push_back(tensors.back());
        tensors.back().name.replace(name.find("layers.3."), 9, "layers.4.");
    }
    tensors.push_back({"model.layers.4.eh_proj.weight", {1, 1}, {1.0F}});
    std::filesystem::create_directories(hf());
    put(hf() + "/config.json", config.dump());
    write_safetensors(hf() + "/model.safetensors", tensors);
    EXPECT_TRUE(has(refusal(), "layers.4.eh_proj.weight: is not a tensor of a glm4_moe model"));
    config["num_nextn_predict_layers"] = 1;
    put(hf() + "/config.json", config.dump());
    const ImportReport report = import();
    EXPECT_EQ(report.tensors, std::ssize(original.entries()));
    EXPECT_TRUE(has(report.notes.back(), "num_nextn_predict_layers 1: layers behind the last"));
}

TEST_F(ImportHfTest, ExpertsOfMixtralByOwnNames) {
    import_hf(golden_base("mixtral"), out(), {});
    const auto weights = open_base_weights(out());
    const SafetensorsFile original(golden_base("mixtral") + "/model.safetensors");
    EXPECT_EQ(base_tensors(weights->spec()).size(), original.entries().size());
    const auto equal = [&](const char* own, const char* in_file) {
        const std::string layer = "model.layers.2.";
        for (const BaseTensor& tensor : base_tensors(weights->spec())) {
            if (tensor.name != layer + own) continue;
            return read_all(*weights, tensor) == original.read_floats(layer + in_file);
        }
        return false;
    };
    EXPECT_TRUE(equal("mlp.gate.weight", "block_sparse_moe.gate.weight"));
    EXPECT_TRUE(equal("mlp.experts.4.gate_proj.weight", "block_sparse_moe.experts.4.w1.weight"));
    EXPECT_TRUE(equal("mlp.experts.4.down_proj.weight", "block_sparse_moe.experts.4.w2.weight"));
    EXPECT_TRUE(equal("mlp.experts.4.up_proj.weight", "block_sparse_moe.experts.4.w3.weight"));
}

TEST_F(ImportHfTest, ExpertsOfGraniteMoeFromTwoTensors) {
    import_hf(golden_base("granitemoe"), out(), {});
    const auto weights = open_base_weights(out());
    const SafetensorsFile original(golden_base("granitemoe") + "/model.safetensors");
    const std::string block = "model.layers.2.block_sparse_moe.";
    const std::vector<float> gate_up = original.read_floats(block + "input_linear.weight");
    const std::vector<float> down = original.read_floats(block + "output_linear.weight");
    const auto values = [&](const std::string& name) {
        for (const BaseTensor& tensor : base_tensors(weights->spec())) {
            if (tensor.name == "model.layers.2.mlp." + name) return read_all(*weights, tensor);
        }
        return std::vector<float>();
    };
    const auto part = [](const std::vector<float>& all, std::ptrdiff_t i, std::ptrdiff_t parts) {
        const std::ptrdiff_t size = std::ssize(all) / parts;
        return std::vector<float>(all.begin() + i * size, all.begin() + (i + 1) * size);
    };
    EXPECT_EQ(values("gate.weight"), original.read_floats(block + "router.layer.weight"));
    EXPECT_EQ(values("experts.3.gate_proj.weight"), part(gate_up, 6, 10));
    EXPECT_EQ(values("experts.3.up_proj.weight"), part(gate_up, 7, 10));
    EXPECT_EQ(values("experts.3.down_proj.weight"), part(down, 3, 5));
}

/// With the experts of each layer as two tensors.
std::vector<NamedTensor> with_fused_experts(const SafetensorsFile& file, const ModelSpec& spec) {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, entry] : file.entries()) {
        if (has(name, ".experts.")) continue;
        tensors.push_back({name, entry.shape, file.read_floats(name)});
    }
    const ExpertSpec& experts = *spec.experts();
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
        const std::string block = "model.layers." + std::to_string(layer) + ".mlp.experts.";
        NamedTensor gate_up{
            block + "gate_up_proj", {experts.count, 2 * experts.size, spec.hidden_size}, {}};
        NamedTensor down{block + "down_proj", {experts.count, spec.hidden_size, experts.size}, {}};
        for (std::int64_t e = 0; e < experts.count; ++e) {
            for (const char* linear : {"gate_proj", "up_proj", "down_proj"}) {
                const std::vector<float> values =
                    file.read_floats(block + std::to_string(e) + "." + linear + ".weight");
                std::vector<float>& to =
                    std::string(linear) == "down_proj" ? down.values : gate_up.values;
                to.insert(to.end(), values.begin(), values.end());
            }
        }
        tensors.push_back(std::move(gate_up));
        tensors.push_back(std::move(down));
    }
    return tensors;
}

TEST_F(ImportHfTest, ExpertsThatAreTwoTensorsOfALayer) {
    const std::string config = read_text(golden_base("qwen3_moe") + "/config.json");
    const SafetensorsFile original(golden_base("qwen3_moe") + "/model.safetensors");
    const ModelSpec spec = parse_hf_config(config, "config.json");
    std::vector<NamedTensor> fused = with_fused_experts(original, spec);
    std::filesystem::create_directories(hf());
    put(hf() + "/config.json", config);
    write_safetensors(hf() + "/model.safetensors", fused);
    EXPECT_EQ(import({.force = true}).tensors, std::ssize(base_tensors(spec)));
    const auto weights = open_base_weights(out());
    for (const BaseTensor& tensor : base_tensors(spec)) {
        EXPECT_EQ(read_all(*weights, tensor), original.read_floats(tensor.name)) << tensor.name;
    }
    std::filesystem::remove(out());
    fused.back().shape = {fused.back().shape[0] * fused.back().shape[1], fused.back().shape[2]};
    write_safetensors(hf() + "/model.safetensors", fused);
    EXPECT_TRUE(has(refusal(), "experts.down_proj: is not a tensor of a qwen3_moe model"));
}

TEST_F(ImportHfTest, TextModelsInsideOfOthersComeOutAlone) {
    const ImportReport report = import_hf(golden_base("gemma3"), out(), {.force = true});
    const auto weights = open_base_weights(out());
    const SafetensorsFile original(golden_base("gemma3") + "/model.safetensors");
    EXPECT_EQ(report.wrapper, "gemma3");
    EXPECT_EQ(report.family, "gemma3_text");
    EXPECT_EQ(weights->spec().wrapper, "gemma3");
    EXPECT_EQ(weights->max_positions(), 256);
    const auto tensors = base_tensors(weights->spec());
    EXPECT_EQ(report.tensors, std::ssize(tensors));
    EXPECT_GT(report.ignored, 0);
    EXPECT_EQ(report.ignored + report.tensors, std::ssize(original.entries()));
    for (const BaseTensor& tensor : tensors) {
        EXPECT_EQ(read_all(*weights, tensor), original.read_floats("language_model." + tensor.name))
            << tensor.name;
    }
}

/// The model in `folder`, whose config.json has this `_name_or_path` (null = none).
std::string recorded_name(const TempDir& dir, const std::string& folder, const json& name,
                          const ImportOptions& options = {.force = true}) {
    json config = tiny_config();
    if (!name.is_null()) config["_name_or_path"] = name;
    std::filesystem::create_directories(dir.file(folder));
    put_model(dir.file(folder), config, tiny_tensors(tiny_spec()));
    const ImportReport report = import_hf(dir.file(folder), dir.file("named.h5"), options);
    EXPECT_EQ(open_base_weights(dir.file("named.h5"))->base_model_name(), report.base_model_name);
    return report.base_model_name;
}

TEST_F(ImportHfTest, RecordsWhatPeftFindsTheBaseModelBy) {
    EXPECT_EQ(recorded_name(dir_, "m", nullptr), dir_.file("m"));
    EXPECT_EQ(recorded_name(dir_, "m/", nullptr), dir_.file("m"));
    EXPECT_EQ(recorded_name(dir_, "m/../m", nullptr), dir_.file("m"));
    EXPECT_EQ(recorded_name(dir_, "Tiny-1B", "org/tiny-1b"), "org/tiny-1b");
    EXPECT_EQ(recorded_name(dir_, "tuned", "org/tiny-1b"), dir_.file("tuned"))
        << "it may be the model that this one was tuned from";
    for (const char* odd : {"/other/m", "./m", "org/x/m", "m", "org/", "/m", "", "org name/m"}) {
        EXPECT_EQ(recorded_name(dir_, "m", odd), dir_.file("m")) << odd;
    }
    EXPECT_EQ(recorded_name(dir_, "m", 7), dir_.file("m"));
    EXPECT_EQ(recorded_name(dir_, "hub/models--org--Tiny--1B/snapshots/0a1b", "x/0a1b"),
              "org/Tiny--1B");
    EXPECT_EQ(recorded_name(dir_, "hub/models--gpt2/snapshots/0a1b", nullptr), "gpt2");
    EXPECT_EQ(recorded_name(dir_, "m", "org/m", {.force = true, .base_model_name = "mine/m"}),
              "mine/m");
}

TEST_F(ImportHfTest, Bf16IsKeptOrMade) {
    import_hf(golden_base("qwen3"), out(), {.store_bf16 = true});
    const auto weights = open_base_weights(out());
    const SafetensorsFile original(golden_base("qwen3") + "/model.safetensors");
    RawTensors as_bf16;
    for (const BaseTensor& tensor : base_tensors(weights->spec())) {
        std::vector<float> rounded = original.read_floats(tensor.name);
        std::vector<BFloat16> bits;
        for (float& value : rounded) {
            bits.push_back(to_bfloat16(value));
            value = to_float(bits.back());
        }
        EXPECT_EQ(read_all(*weights, tensor), rounded) << tensor.name;
        as_bf16[tensor.name] = {"BF16", tensor.shape, bytes_of(bits)};
    }
    put_model(hf(), json::parse(read_text(golden_base("qwen3") + "/config.json")), as_bf16);
    import_hf(hf(), dir_.file("kept.h5"), {});
    EXPECT_EQ(tensor_checksum(dir_.file("kept.h5")), tensor_checksum(out()));
}

TEST_F(ImportHfTest, F16BecomesF32OrBf16) {
    RawTensors tensors = tiny_tensors(tiny_spec());
    const std::vector<std::uint16_t> halves{0x3c00, 0xc000, 0x0001, 0x7bff,
                                            0,      0x3555, 0x8000, 0x3800};
    tensors["model.norm.weight"] = {"F16", {8}, bytes_of(halves)};
    put_tiny(tensors);
    import({.store_bf16 = false});
    const auto weights = open_base_weights(out());
    EXPECT_EQ(read_all(*weights, {"model.norm.weight", {8}}),
              (std::vector<float>{1, -2, 0x1p-24F, 65504, 0, 0.333251953125F, -0.0F, 0.5F}));
    import({.force = true, .store_bf16 = true});
    EXPECT_EQ(read_all(*open_base_weights(out()), {"model.norm.weight", {8}}),
              (std::vector<float>{1, -2, 0x1p-24F, 65536, 0, 0.333984375F, -0.0F, 0.5F}));
}

TEST_F(ImportHfTest, RefusesValuesThatAreNotFinite) {
    RawTensors tensors = tiny_tensors(tiny_spec());
    std::vector<float> head(80, 1.0F);
    head[17] = std::numeric_limits<float>::quiet_NaN();
    tensors["lm_head.weight"].bytes = bytes_of(head);
    put_tiny(tensors);
    EXPECT_TRUE(has(refusal(), "model.safetensors:lm_head.weight: element 17 is nan"));
    head[17] = std::numeric_limits<float>::max();
    tensors["lm_head.weight"].bytes = bytes_of(head);
    put_tiny(tensors);
    EXPECT_TRUE(has(refusal({.store_bf16 = true}), "lm_head.weight: element 17 is inf"));
    tensors["lm_head.weight"] = {"F16", {10, 8}, bytes_of(std::vector<std::uint16_t>(80, 0x7c00))};
    put_tiny(tensors);
    EXPECT_TRUE(has(refusal(), "lm_head.weight: element 0 is inf"));
}

TEST_F(ImportHfTest, ImportsShards) {
    put_sharded();
    import();
    put_tiny(tiny_tensors(tiny_spec()));
    import_hf(hf(), dir_.file("single.h5"), {});
    EXPECT_EQ(tensor_checksum(out()), tensor_checksum(dir_.file("single.h5")));
}

TEST_F(ImportHfTest, TensorLargerThanABlock) {
    json config = tiny_config();
    config["vocab_size"] = 400001;
    const ModelSpec spec = tiny_spec(config);
    put_tiny(tiny_tensors(spec), config);
    import();
    const auto weights = open_base_weights(out());
    const BaseTensor embedding = base_tensors(spec).front();
    EXPECT_TRUE(read_all(*weights, embedding) == tiny_values(embedding));
    std::vector<float> row(8);
    weights->read_rows(embedding.name, 399999, matrix(row.data(), DType::f32, 1, 8));
    EXPECT_EQ(row[0], tiny_value(embedding.name, 8 * 399999));
}

TEST_F(ImportHfTest, KeepsTheConfigVerbatim) {
    json config = tiny_config();
    config["note"] = std::string(200000, 'n') + "\u00e4";
    put_tiny(tiny_tensors(tiny_spec()), config);
    import();
    EXPECT_EQ(open_base_weights(out())->spec().hidden_size, 8);
}

TEST_F(ImportHfTest, RotaryBuffersAreSkipped) {
    RawTensors tensors = tiny_tensors(tiny_spec());
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F32", {2}, std::string(8, '\0')};
    put_tiny(tensors);
    EXPECT_NO_THROW(import());
}

TEST_F(ImportHfTest, TiedHeadMustBeTheEmbedding) {
    json config = tiny_config();
    RawTensors tensors = tiny_tensors(tiny_spec());
    config["tie_word_embeddings"] = true;
    put_tiny(tensors, config);
    EXPECT_TRUE(has(refusal(), "lm_head.weight: differs from the embedding although"));
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
    put_tiny(tensors, config);
    import();
    EXPECT_TRUE(open_base_weights(out())->spec().tie_word_embeddings);
    std::filesystem::remove(out());
    tensors["lm_head.weight"].shape = {8, 10};
    put_tiny(tensors, config);
    EXPECT_TRUE(has(refusal(), "differs in shape or dtype"));
}

TEST_F(ImportHfTest, AllProblemsOfTheTensorsAtOnce) {
    RawTensors tensors = tiny_tensors(tiny_spec());
    tensors.erase("lm_head.weight");
    tensors["model.norm.weight"].shape = {2, 4};
    tensors["model.layers.0.mlp.up_proj.weight"].dtype = "I32";
    tensors["model.layers.0.mlp.up_proj.weight_scale"] = {"F32", {1}, std::string(4, '\0')};
    put_tiny(tensors);
    const std::string text = refusal();
    EXPECT_TRUE(has(text, "hf:lm_head.weight: tensor is missing"));
    EXPECT_TRUE(has(text, "model.norm.weight: has shape [2, 4], config.json needs [8]"));
    EXPECT_TRUE(has(text, "up_proj.weight: has dtype I32"));
    EXPECT_TRUE(has(text, "up_proj.weight_scale: is not a tensor of a llama model"));
}

TEST_F(ImportHfTest, ReadsNamesWithOtherWordsInFront) {
    const auto import_named = [&](const auto& name_of, const json& config = tiny_config()) {
        RawTensors renamed;
        for (const auto& [name, tensor] : tiny_tensors(tiny_spec()))
            renamed[name_of(name)] = tensor;
        put_tiny(renamed, config);
        const ImportReport report = import({.force = true});
        EXPECT_EQ(read_all(*open_base_weights(out()), base_tensors(tiny_spec()).front()),
                  tiny_values(base_tensors(tiny_spec()).front()));
        return report;
    };
    const auto behind = [](const std::string& prefix) {
        return [prefix](const std::string& name) { return prefix + name; };
    };
    EXPECT_EQ(import_named(behind("")).renamed, "");
    for (const std::string prefix :
         {"_orig_mod.", "module.", "base_model.model.", "module._orig_mod."}) {
        EXPECT_EQ(import_named(behind(prefix)).renamed,
                  prefix + "model.embed_tokens.weight is read as model.embed_tokens.weight");
    }
    const auto in_layers = [](const std::string& word) {
        return [word](const std::string& name) {
            const std::size_t layer = name.find("layers.0.");
            return layer == std::string::npos
                       ? name
                       : name.substr(0, layer + 9) + word + name.substr(layer + 9);
        };
    };
    for (const std::string word :
         {"_orig_mod.", "_fsdp_wrapped_module._checkpoint_wrapped_module."}) {
        EXPECT_TRUE(has(import_named(in_layers(word)).renamed,
                        "model.layers.0." + word + "input_layernorm.weight is read as"));
    }
    const auto instead_of_model = [](const std::string& prefix) {
        return [prefix](const std::string& name) {
            return name.starts_with("model.") ? prefix + name.substr(6) : name;
        };
    };
    for (const std::string prefix : {"", "model.language_model.", "transformer."}) {
        EXPECT_EQ(import_named(instead_of_model(prefix)).renamed,
                  prefix + "embed_tokens.weight is read as model.embed_tokens.weight");
    }
    json text = tiny_config();
    text["model_type"] = "mistral";
    text["sliding_window"] = nullptr;
    const json wrapper = {{"model_type", "mistral3"}, {"text_config", text}};
    for (const std::string inner : {"model.language_model.", "language_model.model."}) {
        const ImportReport report = import_named(
            [&](const std::string& name) { return "_orig_mod." + instead_of_model(inner)(name); },
            wrapper);
        EXPECT_EQ(report.wrapper, "mistral3");
        EXPECT_TRUE(has(report.renamed, "_orig_mod." + inner + "embed_tokens.weight is read as"));
    }
}

TEST_F(ImportHfTest, SaysThatAnAdapterIsInTheFolder) {
    RawTensors tensors;
    for (const auto& [name, tensor] : tiny_tensors(tiny_spec())) {
        const std::size_t q = name.find("q_proj.");
        const std::string inner =
            q == std::string::npos ? name
                                   : cat(name.substr(0, q + 7), "base_layer.", name.substr(q + 7));
        tensors["base_model.model." + inner] = tensor;
    }
    put_tiny(tensors);
    const std::string text = refusal();
    EXPECT_TRUE(has(text, "q_proj.base_layer.weight: is not a tensor of a llama model")) << text;
    EXPECT_TRUE(has(text, "merge it into the model (PEFT: merge_and_unload)")) << text;
}

TEST_F(ImportHfTest, LongListsAreCut) {
    json config = tiny_config();
    config["num_hidden_layers"] = 7;
    put_tiny(tiny_tensors(tiny_spec()), config);
    const auto problems = test::problems_of([&] { import(); });
    EXPECT_EQ(problems.size(), 21U);
    EXPECT_TRUE(has(to_string(problems.back()), "and 34 more problems"));
}

TEST_F(ImportHfTest, RefusesIncompleteDirectories) {
    EXPECT_TRUE(has(problem_text([&] { import(); }), "hf: is not a directory"));
    std::filesystem::create_directories(hf());
    EXPECT_TRUE(
        has(problem_text([&] { import(); }), "hf: has no config.json\n    give the folder"));
    put_tiny({});
    std::filesystem::remove(hf() + "/model.safetensors");
    EXPECT_TRUE(has(refusal(), "has neither model.safetensors nor"));
    put(hf() + "/pytorch_model.bin", "x");
    EXPECT_TRUE(has(refusal(), "safe_serialization"));
}

TEST_F(ImportHfTest, RefusesWrongConfig) {
    json config = tiny_config();
    config["hidden_act"] = "gelu";
    put_tiny(tiny_tensors(tiny_spec()), config);
    EXPECT_TRUE(has(refusal(), "hf/config.json: hidden_act is \"gelu\""));
}

TEST_F(ImportHfTest, RefusesTruncatedWeights) {
    put_tiny(tiny_tensors(tiny_spec()));
    const std::string path = hf() + "/model.safetensors";
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 5);
    const std::string text = refusal();
    EXPECT_TRUE(has(text, "ends beyond the"));
    EXPECT_TRUE(has(text, "(truncated?)"));
}

TEST_F(ImportHfTest, RefusesShardsThatDoNotAgreeWithTheIndex) {
    put_sharded({{"extra.weight", shard_name(0)}, {"lm_head.weight", nullptr}});
    std::string text = refusal();
    EXPECT_TRUE(has(text, "extra.weight: tensor is missing, the index says it is here"));
    EXPECT_TRUE(has(text, "lm_head.weight: tensor is not in the index"));
    put_sharded({{"lm_head.weight", shard_name(1)}});
    text = refusal();
    EXPECT_TRUE(has(text, "tensor is missing, the index says"));
    EXPECT_TRUE(has(text, "lm_head.weight: tensor is also in"));
    put_sharded({{"lm_head.weight", "../x.safetensors"}});
    EXPECT_TRUE(has(refusal(), "must be a file name"));
    put_sharded();
    std::filesystem::remove(hf() + "/" + shard_name(1));
    EXPECT_TRUE(has(refusal(), "model-00002-of-00002.safetensors: cannot be read"));
    put(hf() + "/model.safetensors.index.json", "{}");
    EXPECT_TRUE(has(refusal(), "has no 'weight_map'"));
    put(hf() + "/model.safetensors.index.json", "{\"weight_map\": {");
    EXPECT_TRUE(has(refusal(), "not valid JSON"));
}

TEST_F(ImportHfTest, ExistingOutputNeedsForce) {
    put_tiny(tiny_tensors(tiny_spec()));
    put(out(), "precious");
    EXPECT_TRUE(has(problem_text([&] { import(); }), "base.h5: exists already"));
    EXPECT_EQ(read_text(out()), "precious");
    import({.force = true});
    EXPECT_NO_THROW(open_base_weights(out()));
    EXPECT_TRUE(has(problem_text([&] { import_hf(hf(), dir_.path(), {}); }), "is a directory"));
    put(dir_.file("file"), "");
    EXPECT_TRUE(has(problem_text([&] { import_hf(hf(), dir_.file("file/b.h5"), {}); }),
                    "is not a directory"));
}

TEST_F(ImportHfTest, MakesTheFolderOfItsOutputOnceTheInputIsGood) {
    put_tiny(tiny_tensors(tiny_spec()));
    const std::string out = dir_.file("new/deep/base.h5");
    EXPECT_TRUE(has(problem_text([&] { import_hf(dir_.file("nothing"), out, {}); }),
                    "nothing: is not a directory"));
    EXPECT_FALSE(std::filesystem::exists(dir_.file("new")));
    import_hf(hf(), out, {});
    EXPECT_NO_THROW(open_base_weights(out));
}

TEST_F(ImportHfTest, NameOnAHubIsToBeDownloadedFirst) {
    const auto refusal = [&](const std::string& folder) {
        return problem_text([&] { import_hf(folder, dir_.file("b.h5"), {}); });
    };
    const char* const hint =
        "download it first: hf download org/Model-1.5B --local-dir Model-1.5B, and give that "
        "folder";
    EXPECT_TRUE(has(refusal("org/Model-1.5B"), hint)) << refusal("org/Model-1.5B");
    EXPECT_TRUE(has(refusal(dir_.file("org/Model-1.5B")), hint));
    EXPECT_FALSE(has(refusal(dir_.file("missing")), "hf download"));
    EXPECT_TRUE(has(problem_text([] { open_base_weights("org/Model-1.5B"); }), hint));
}

TEST_F(ImportHfTest, FullDiskIsAnErrorAndLeavesNothing) {
    json config = tiny_config();
    config["vocab_size"] = 100000;
    put_tiny(tiny_tensors(tiny_spec(config)), config);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1U << 20U, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    try {
        import();
        ADD_FAILURE() << "no error";
    } catch (const Error& error) {
        EXPECT_TRUE(has(error.what(), "base.h5"));
        EXPECT_TRUE(has(error.what(), "cannot"));
    }
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    EXPECT_EQ(dir_.names(), std::vector<std::string>{"hf"});
    EXPECT_NO_THROW(import());
}

TEST_F(ImportHfTest, SameModelGivesSameBytes) {
    put_tiny(tiny_tensors(tiny_spec()));
    import();
    const std::string first = file_checksum(out());
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // time stamps would differ
    import({.force = true});
    EXPECT_EQ(file_checksum(out()), first);
}

}  // namespace
}  // namespace loratrain
