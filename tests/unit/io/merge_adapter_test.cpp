#include "io/adapters/merge_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "io/files.h"
#include "io/safetensors.h"
#include "io/weights/base_tensors.h"
#include "io/weights/import_hf.h"
#include "support/files.h"
#include "support/golden_path.h"
#include "support/problems.h"
#include "unit/io/merge_folder.h"

namespace loratrain {
namespace {

using nlohmann::json;
using test::golden_path;
using test::has;
using test::problem_text;
using test::problems_of;

class MergeAdapterTest : public test::MergeFolder {
  protected:
    /// W + scaling B A of a module, in fp64.
    static std::vector<double> expected(const std::string& family, const std::string& adapter,
                                        const std::string& module, double scaling) {
        const SafetensorsFile base(golden_path(family + "/base/model.safetensors"));
        const SafetensorsFile lora(
            golden_path(family + "/adapters/" + adapter + "/final/adapter_model.safetensors"));
        const std::vector<float> w = base.read_floats(module + ".weight");
        const std::string name = "base_model.model." + module;
        const std::vector<float> a = lora.read_floats(name + ".lora_A.weight");
        const std::vector<float> b = lora.read_floats(name + ".lora_B.weight");
        const auto in = static_cast<std::size_t>(base.entry(module + ".weight").shape[1]);
        const std::size_t rank = a.size() / in;
        std::vector<double> merged(w.begin(), w.end());
        for (std::size_t i = 0; i < merged.size(); ++i) {
            for (std::size_t k = 0; k < rank; ++k) {
                merged[i] += scaling * b[i / in * rank + k] * a[k * in + i % in];
            }
        }
        return merged;
    }
    static std::string adapter_dir(const std::string& family, const std::string& adapter) {
        return golden_path(family + "/adapters/" + adapter + "/final");
    }

    /// A copy of a golden adapter with these changes of its config and of its tensors.
    std::string changed(const std::string& family, const std::string& adapter, const json& config,
                        const std::function<void(std::vector<NamedTensor>&)>& change = {}) {
        const std::string from = adapter_dir(family, adapter);
        const std::string dir = folder_.file("adapter");
        std::filesystem::create_directories(dir);
        json document = json::parse(read_text(from + "/adapter_config.json"));
        if (!config.is_null()) document.merge_patch(config);
        write_text_atomic(dir + "/adapter_config.json", document.dump());
        const SafetensorsFile file(from + "/adapter_model.safetensors");
        std::vector<NamedTensor> tensors;
        for (const auto& [name, entry] : file.entries()) {
            tensors.push_back({name, entry.shape, file.read_floats(name)});
        }
        if (change) change(tensors);
        write_safetensors(dir + "/adapter_model.safetensors", tensors);
        return dir;
    }
    std::string refusal_of(const std::string& dir, const WeightSource& weights) {
        const std::string text = problem_text([&] { merge_adapter(dir, weights, out()); });
        EXPECT_FALSE(std::filesystem::exists(out()));
        EXPECT_FALSE(std::filesystem::exists(hidden()));
        return text;
    }
};

/// A base whose weights are whole and whose config.json is not.
class BaseWithoutConfig : public WeightSource {
  public:
    explicit BaseWithoutConfig(const WeightSource& whole) : whole_(whole) {}
    const ModelSpec& spec() const override { return whole_.spec(); }
    std::string checksum() const override { return whole_.checksum(); }
    std::string config() const override { return "{"; }
    void read_rows(const std::string& name, std::int64_t first_row,
                   const TensorView& rows) const override {
        whole_.read_rows(name, first_row, rows);
    }

  private:
    const WeightSource& whole_;
};

TEST_F(MergeAdapterTest, LeavesNothingBehindWhereTheConfigCannotBeWritten) {
    const auto weights = base("phi3");
    EXPECT_TRUE(has(refusal_of(adapter_dir("phi3", "a_r4_all"), BaseWithoutConfig(*weights)),
                    "config.json"));
}

TEST_F(MergeAdapterTest, AddsTheScaledProductToItsWeightsAlone) {
    const auto weights = base("phi3");
    const MergeReport report = merge_adapter(adapter_dir("phi3", "a_r4_all"), *weights, out());
    EXPECT_EQ(report.modules, 3 * 4);
    EXPECT_EQ(report.files, 1);
    const SafetensorsFile merged(out() + "/model.safetensors");
    const SafetensorsFile original(golden_path("phi3/base/model.safetensors"));
    EXPECT_EQ(merged.entries().size(), base_tensors(weights->spec()).size());
    for (const auto& [name, entry] : merged.entries()) {
        const std::vector<float> values = merged.read_floats(name);
        if (!name.ends_with("_proj.weight")) {
            EXPECT_EQ(values, original.read_floats(name)) << name;
            continue;
        }
        const std::string module = name.substr(0, name.size() - std::string(".weight").size());
        const std::vector<double> wanted = expected("phi3", "a_r4_all", module, 8.0 / 4.0);
        ASSERT_EQ(values.size(), wanted.size());
        for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], wanted[i], 1e-6);
        EXPECT_NE(values, original.read_floats(name)) << name;
    }
    const json config = json::parse(read_text(out() + "/config.json"));
    EXPECT_EQ(config["dtype"], "float32");
    EXPECT_EQ(config["model_type"], "phi3");
    EXPECT_NO_THROW(import_hf(out(), folder_.file("again.h5"), {}));
}

TEST_F(MergeAdapterTest, KeepsExperts) {
    const auto weights = base("qwen3_moe");
    const MergeReport report = merge_adapter(adapter_dir("qwen3_moe", "a_r4_all"), *weights, out());
    EXPECT_EQ(report.modules, 3 * 4);
    const SafetensorsFile merged(out() + "/model.safetensors");
    const SafetensorsFile original(golden_path("qwen3_moe/base/model.safetensors"));
    EXPECT_EQ(merged.entries().size(), original.entries().size());
    const std::string expert = "model.layers.1.mlp.experts.5.down_proj.weight";
    EXPECT_EQ(merged.read_floats(expert), original.read_floats(expert));
}

TEST_F(MergeAdapterTest, KeepsShapesOfConvolutions) {
    const auto weights = base("qwen3_next");
    const MergeReport report =
        merge_adapter(adapter_dir("qwen3_next", "a_r4_all"), *weights, out());
    EXPECT_EQ(report.modules, 3 * 3 + 4);
    const SafetensorsFile merged(out() + "/model.safetensors");
    const SafetensorsFile original(golden_path("qwen3_next/base/model.safetensors"));
    const std::string net = "model.layers.1.linear_attn.";
    for (const char* name : {"conv1d.weight", "A_log", "dt_bias", "norm.weight"}) {
        EXPECT_EQ(merged.entry(net + name).shape, original.entry(net + name).shape) << name;
        EXPECT_EQ(merged.read_floats(net + name), original.read_floats(net + name)) << name;
    }
    EXPECT_NE(merged.read_floats(net + "in_proj_ba.weight"),
              original.read_floats(net + "in_proj_ba.weight"));
}

TEST_F(MergeAdapterTest, WritesExpertsOfMixtralByItsNames) {
    const auto weights = base("mixtral");
    const MergeReport report = merge_adapter(adapter_dir("mixtral", "f_experts"), *weights, out());
    EXPECT_EQ(report.modules, 3 * (4 + 3 * 5));
    const SafetensorsFile merged(out() + "/model.safetensors");
    const SafetensorsFile original(golden_path("mixtral/base/model.safetensors"));
    EXPECT_EQ(merged.entries().size(), original.entries().size());
    const std::string layer = "model.layers.1.block_sparse_moe.";
    EXPECT_EQ(merged.read_floats(layer + "gate.weight"),
              original.read_floats(layer + "gate.weight"));
    EXPECT_NE(merged.read_floats(layer + "experts.4.w3.weight"),
              original.read_floats(layer + "experts.4.w3.weight"));
}

TEST_F(MergeAdapterTest, WritesAllExpertsOfALayerAsTheirFilesHaveThem) {
    for (const std::string family : {"gpt_oss", "granitemoe"}) {
        const auto weights = base(family);
        const MergeReport report = merge_adapter(adapter_dir(family, "a_r4_all"), *weights, out());
        EXPECT_EQ(report.modules, 3 * 4);
        const SafetensorsFile merged(out() + "/model.safetensors");
        const SafetensorsFile original(golden_path(family + "/base/model.safetensors"));
        ASSERT_EQ(merged.entries().size(), original.entries().size());
        for (const auto& [name, entry] : original.entries()) {
            ASSERT_EQ(merged.entries().count(name), 1U) << name;
            EXPECT_EQ(merged.entry(name).shape, entry.shape) << name;
            EXPECT_EQ(merged.entry(name).dtype, entry.dtype) << name;
            const bool adapted = name.ends_with("_proj.weight");
            EXPECT_EQ(merged.read_floats(name) == original.read_floats(name), !adapted) << name;
        }
        std::filesystem::remove_all(out());
    }
}

/// What was in MXFP4 is bf16 then; read again, the base has the same numbers.
TEST_F(MergeAdapterTest, ExpertsOfMxfp4AreReadAgainAsTheyWere) {
    const auto weights = base("gpt_oss_mxfp4");
    merge_adapter(adapter_dir("gpt_oss_mxfp4", "a_r4_all"), *weights, out());
    EXPECT_FALSE(json::parse(read_text(out() + "/config.json")).contains("quantization_config"));
    import_hf(out(), folder_.file("again.h5"), {});
    const auto again = open_base_weights(folder_.file("again.h5"));
    ASSERT_EQ(again->spec().descriptions, weights->spec().descriptions);
    for (const BaseTensor& tensor : base_tensors(weights->spec())) {
        const std::int64_t cols = tensor.shape.back();
        const std::int64_t rows = tensor.shape.size() < 2 ? 1 : tensor.shape[0];
        std::vector<float> before(static_cast<std::size_t>(rows * cols));
        std::vector<float> now = before;
        weights->read_rows(tensor.name, 0, matrix(before.data(), DType::f32, rows, cols));
        again->read_rows(tensor.name, 0, matrix(now.data(), DType::f32, rows, cols));
        const bool adapted = has(tensor.name, "self_attn.") && tensor.name.ends_with(".weight");
        EXPECT_EQ(before == now, !adapted) << tensor.name;
    }
}

TEST_F(MergeAdapterTest, RefusesTheTextModelOfAnother) {
    const auto weights = base("qwen3_5_moe");
    const std::string found = problem_text(
        [&] { merge_adapter(adapter_dir("qwen3_5_moe", "c_r3_qv"), *weights, out()); });
    EXPECT_TRUE(has(found, "the base is the text model of a qwen3_5_moe, whose other parts"))
        << found;
    EXPECT_TRUE(has(found, "merge it with PEFT: merge_and_unload()")) << found;
    EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(MergeAdapterTest, AddsToExperts) {
    const auto weights = base("qwen3_moe");
    const MergeReport report = merge_adapter(adapter_dir("qwen3_moe", "f_experts"), *weights, out(),
                                             {.shard_bytes = 1'000'000});
    EXPECT_EQ(report.modules, 3 * (4 + 3 * 6));
    const SafetensorsFile merged(out() + "/model.safetensors");
    const SafetensorsFile original(golden_path("qwen3_moe/base/model.safetensors"));
    const SafetensorsFile adapter(adapter_dir("qwen3_moe", "f_experts") +
                                  "/adapter_model.safetensors");
    const std::string module = "model.layers.1.mlp.experts.5.down_proj";
    const std::vector<float> a =
        adapter.read_floats("base_model.model." + module + ".lora_A.weight");
    const std::vector<float> b =
        adapter.read_floats("base_model.model." + module + ".lora_B.weight");
    std::vector<float> expected = original.read_floats(module + ".weight");
    const std::vector<float> found = merged.read_floats(module + ".weight");
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        for (std::size_t r = 0; r < 4; ++r) {
            expected[i] += 2.0F * b[i / 24 * 4 + r] * a[r * 24 + i % 24];
        }
        EXPECT_NEAR(found[i], expected[i], 1e-6F);
    }
}

TEST_F(MergeAdapterTest, ShardsHoldEveryTensorOnce) {
    const auto weights = base("apertus");
    const MergeReport report = merge_adapter(adapter_dir("apertus", "b_r8_attn"), *weights, out(),
                                             {.shard_bytes = 40'000});
    EXPECT_EQ(report.modules, 3 * 4);
    EXPECT_GT(report.files, 3);
    const json index = json::parse(read_text(out() + "/model.safetensors.index.json"));
    const SafetensorsFile original(golden_path("apertus/base/model.safetensors"));
    EXPECT_EQ(index["weight_map"].size(), original.entries().size());
    std::uint64_t bytes = 0;
    for (const auto& [name, file] : index["weight_map"].items()) {
        const SafetensorsFile shard(out() + "/" + file.get<std::string>());
        EXPECT_EQ(shard.entry(name).shape, original.entry(name).shape) << name;
        bytes += shard.entry(name).end - shard.entry(name).begin;
    }
    EXPECT_EQ(index["metadata"]["total_size"], bytes);
    EXPECT_EQ(report.bytes, bytes);
    const std::string module = "model.layers.2.self_attn.o_proj";
    const std::string file = index["weight_map"][module + ".weight"];
    const std::vector<double> wanted =
        expected("apertus", "b_r8_attn", module, 8.0 / std::sqrt(8.0));  // rsLoRA
    const std::vector<float> values =
        SafetensorsFile(out() + "/" + file).read_floats(module + ".weight");
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], wanted[i], 1e-6);
    EXPECT_NO_THROW(import_hf(out(), folder_.file("again.h5"), {}));
}

TEST_F(MergeAdapterTest, KeepsBf16) {
    const auto weights = base("llama", {.store_bf16 = true});
    merge_adapter(adapter_dir("llama", "c_r3_qv"), *weights, out());
    const SafetensorsFile merged(out() + "/model.safetensors");
    for (const auto& [name, entry] : merged.entries()) EXPECT_EQ(entry.dtype, "BF16") << name;
    const std::string module = "model.layers.1.self_attn.v_proj";
    const std::vector<double> wanted = expected("llama", "c_r3_qv", module, 4.0);
    const std::vector<float> values = merged.read_floats(module + ".weight");
    for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], wanted[i], 0.01 * std::abs(wanted[i]) + 0.003);
    }
    EXPECT_EQ(json::parse(read_text(out() + "/config.json"))["dtype"], "bfloat16");
}

TEST_F(MergeAdapterTest, RefusesWhatAWeightCannotTake) {
    const auto weights = base("llama");
    const auto refusal = [&](const std::string& adapter) {
        const std::string text =
            problem_text([&] { merge_adapter(adapter_dir("llama", adapter), *weights, out()); });
        EXPECT_FALSE(std::filesystem::exists(out()));
        return text;
    };
    EXPECT_TRUE(has(refusal("f_dora"), "use_dora is true, which gives rows of W"));
    EXPECT_TRUE(has(refusal("f_vera"), "peft_type is \"VERA\""));
    EXPECT_TRUE(has(refusal("f_embed"), "embed_tokens.lora_embedding_A: cannot be merged"));
    EXPECT_EQ(
        problems_of([&] { merge_adapter(adapter_dir("llama", "f_dora"), *weights, out()); }).size(),
        1U);
    const auto other = base("phi3");
    EXPECT_TRUE(
        has(problem_text([&] { merge_adapter(adapter_dir("llama", "a_r4_all"), *other, out()); }),
            "cannot be merged into the base"));
    std::filesystem::create_directories(out());
    EXPECT_TRUE(
        has(problem_text([&] { merge_adapter(adapter_dir("llama", "a_r4_all"), *weights, out()); }),
            "exists already"));
}

TEST_F(MergeAdapterTest, RefusesVariants) {
    const auto weights = base("llama");
    const auto refusal = [&](const json& config) {
        return refusal_of(changed("llama", "c_r3_qv", config), *weights);
    };
    EXPECT_TRUE(has(refusal({{"init_lora_weights", "pissa"}}), "which changes the base weights"));
    EXPECT_TRUE(has(refusal({{"init_lora_weights", "lora_ga"}}), "which changes the base weights"));
    EXPECT_TRUE(has(refusal({{"alora_invocation_tokens", {5, 6}}}), "PEFT cannot merge it either"));
    EXPECT_TRUE(has(refusal({{"layer_replication", {{0, 2}, {1, 4}}}}), "repeats layers"));
    EXPECT_TRUE(has(refusal({{"kasa_config", {{"beta", 1}}}}), "merge_and_unload()"));
    EXPECT_TRUE(has(refusal({{"new_key", 1}}), "new_key is 1, which is not a key of PEFT"));
    EXPECT_TRUE(has(refusal({{"target_modules", {"q_proj"}}}),
                    "v_proj.lora_A.weight: is of no module that target_modules"));
}

TEST_F(MergeAdapterTest, NamesPatternsThatMatchNothing) {
    const auto weights = base("llama");
    const std::string dir = changed("llama", "c_r3_qv", {{"alpha_pattern", {{"q_prj", 8}}}});
    testing::internal::CaptureStderr();
    merge_adapter(dir, *weights, out());
    EXPECT_TRUE(has(testing::internal::GetCapturedStderr(),
                    "alpha_pattern: 'q_prj' matches no target of this llama model"));
}

TEST_F(MergeAdapterTest, RefusesNumbersThatAreNotFinite) {
    const auto weights = base("llama");
    const auto refusal = [&](float value) {
        return refusal_of(changed("llama", "c_r3_qv", {},
                                  [&](std::vector<NamedTensor>& tensors) {
                                      for (NamedTensor& tensor : tensors) tensor.values[5] = value;
                                  }),
                          *weights);
    };
    EXPECT_TRUE(has(refusal(std::numeric_limits<float>::quiet_NaN()), "element 5 is nan"));
    EXPECT_TRUE(has(refusal(-std::numeric_limits<float>::infinity()), "element 5 is -inf"));
    EXPECT_TRUE(has(refusal(3e38F), "self_attn.q_proj.weight with the adapter: element "));
}

/// PEFT writes the base's own head beside LoRA on it.
TEST_F(MergeAdapterTest, ReadsPastTheBasesOwnHead) {
    const auto weights = base("llama");
    const SafetensorsFile own(golden_path("llama/base/model.safetensors"));
    float change = 0.0F;
    const auto with_head = [&](std::vector<NamedTensor>& tensors) {
        NamedTensor head{"base_model.model.lm_head.base_layer.weight",
                         own.entry("lm_head.weight").shape, own.read_floats("lm_head.weight")};
        head.values.back() += change;
        tensors.push_back(head);
    };
    merge_adapter(changed("llama", "f_head", {}, with_head), *weights, out());
    const SafetensorsFile merged(out() + "/model.safetensors");
    const std::vector<double> wanted = expected("llama", "f_head", "lm_head", 10.0 / 3.0);
    const std::vector<float> values = merged.read_floats("lm_head.weight");
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], wanted[i], 1e-6);
    std::filesystem::remove_all(out());
    change = 0.01F;
    EXPECT_TRUE(has(refusal_of(changed("llama", "f_head", {}, with_head), *weights),
                    "lm_head.base_layer.weight: is another than the base's own"));
}

TEST_F(MergeAdapterTest, RefusesLoraOnATiedHead) {
    const auto weights = base("qwen2");
    EXPECT_TRUE(has(refusal_of(adapter_dir("qwen2", "f_head"), *weights),
                    "the head is the embedding matrix"));
}

}  // namespace
}  // namespace loratrain
