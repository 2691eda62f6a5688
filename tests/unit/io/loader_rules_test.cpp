#include "io/adapters/loader_rules.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "io/adapters/export_files.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "io/weights/hf_config.h"
#include "support/files.h"
#include "support/golden_path.h"
#include "support/problems.h"

namespace loratrain {
namespace {

using nlohmann::json;
using test::golden_path;
using test::has;

ModelSpec base_of(const std::string& family) {
    const std::string path = golden_path(family + "/base/config.json");
    return parse_hf_config(read_text(path), path);
}

class LoaderRulesTest : public testing::Test {
  protected:
    /// What each loader says of a golden adapter with these changes of its adapter_config.json:
    /// "PEFT", or "vLLM: obstacles".
    std::string check(const std::string& adapter, const ModelSpec& base, const json& changes = {}) {
        const std::string from = golden_path(adapter);
        const std::string dir = folder_.file("adapter");
        std::filesystem::create_directories(dir);
        json config = json::parse(read_text(from + "/adapter_config.json"));
        if (!changes.is_null()) config.merge_patch(changes);
        write_text_atomic(dir + "/adapter_config.json", config.dump());
        std::filesystem::copy_file(from + "/adapter_model.safetensors",
                                   dir + "/adapter_model.safetensors",
                                   std::filesystem::copy_options::overwrite_existing);
        std::string text;
        advice_.clear();
        for (const LoaderResult& result : check_loaders(dir, base)) {
            text += result.loader + (result.loads() ? " loads\n" : " does not\n");
            for (const std::string& obstacle : result.obstacles) text += obstacle + "\n";
            for (const std::string& line : result.advice) advice_ += line + "\n";
        }
        return text;
    }
    /// All that is wrong with a golden adapter's tensors for PEFT.
    static std::string faults(const std::string& adapter, const ModelSpec& base) {
        const ExportFiles files = read_export_files(golden_path(adapter), base);
        return join(faults_of_tensors(files, Loader::peft, base), "\n");
    }
    static constexpr const char* all = "PEFT loads\nvLLM loads\nSGLang loads\nllama.cpp loads\n";

    test::TempDir folder_;
    std::string advice_;
};

TEST_F(LoaderRulesTest, LoraInExperts) {
    const ModelSpec base = base_of("qwen3_moe");
    const std::string adapter = "qwen3_moe/adapters/f_experts/final";
    EXPECT_EQ(check(adapter, base), all);
    EXPECT_TRUE(has(advice_, "LoRA in experts was tried with PEFT "));
    EXPECT_TRUE(has(check(adapter, base, {{"use_rslora", true}}),
                    "PEFT does not\nuse_rslora: it would scale gate_proj and up_proj "));
    EXPECT_TRUE(has(check(adapter, base, {{"lora_dropout", 0.1}}), "PEFT does not\nlora_dropout"));
    const std::string down = check("qwen3_moe/adapters/f_experts_down/final", base);
    EXPECT_TRUE(
        has(down, "PEFT loads\nvLLM does not\nLoRA in experts is not on gate_proj, up_proj"));
    ModelSpec fewer = base;
    std::get<ExpertSpec>(fewer.descriptions.front().mlp).count = 5;
    EXPECT_TRUE(has(check(adapter, fewer), ".mlp.experts.5.down_proj is not a module of the base"));
}

TEST_F(LoaderRulesTest, LoraBesideExperts) {
    const std::string adapter = "qwen3_moe_dense/adapters/f_experts/final";
    const ModelSpec base = base_of("qwen3_moe_dense");
    EXPECT_TRUE(has(check(adapter, base),
                    "PEFT does not\nmodel.layers.0.mlp.down_proj is not in target_parameters: "
                    "PEFT takes down_proj for that of experts"));
    std::vector<std::string> weights;
    for (const char* layer : {"0", "2"}) {
        for (const char* linear : {"gate_proj", "up_proj", "down_proj"}) {
            weights.push_back(std::string("model.layers.") + layer + ".mlp." + linear + ".weight");
        }
    }
    EXPECT_EQ(check(adapter, base, {{"target_parameters", weights}}), all);
    EXPECT_EQ(check("mixtral/adapters/f_experts/final", base_of("mixtral")), all);
    const std::string qwen2_moe = "qwen2_moe/adapters/f_experts/final";
    EXPECT_TRUE(has(check(qwen2_moe, base_of("qwen2_moe")),
                    "PEFT does not\ntarget_parameters does not name mlp.experts.gate_up_proj"));
    EXPECT_EQ(check(qwen2_moe, base_of("qwen2_moe"),
                    {{"target_parameters", {"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}},
                     {"rank_pattern", {{".*\\.gate_up_proj", 8}}},
                     {"alpha_pattern", {{".*\\.gate_up_proj", 16}}}}),
              all);
    EXPECT_TRUE(has(check("glm4_moe/adapters/f_experts/final", base_of("glm4_moe")),
                    "model.layers.0.mlp.down_proj is not in target_parameters"));
}

TEST_F(LoaderRulesTest, PlainLoraLoadsEverywhere) {
    EXPECT_EQ(check("llama/adapters/a_r4_all/final", base_of("llama")), all);
    EXPECT_FALSE(has(advice_, "--max-lora-rank"));
    EXPECT_EQ(check("gemma2/adapters/c_r3_qv/final", base_of("gemma2")), all);
}

TEST_F(LoaderRulesTest, ScalesThatOneDoesNotKnow) {
    const std::string text = check("llama/adapters/b_r8_attn/final", base_of("llama"));
    EXPECT_TRUE(has(text, "vLLM loads"));
    EXPECT_TRUE(has(text, "llama.cpp does not\nuse_rslora"));
    const std::string patterns = check("llama/adapters/f_patterns/final", base_of("llama"));
    EXPECT_TRUE(has(patterns, "llama.cpp does not\nalpha_pattern"));
    EXPECT_TRUE(has(advice_, "rank_pattern"));
}

TEST_F(LoaderRulesTest, FormsThatOnlyPeftKnows) {
    const std::string dora = check("llama/adapters/f_dora/final", base_of("llama"));
    EXPECT_TRUE(has(dora, "PEFT loads\nvLLM does not\nuse_dora is true, which gives "));
    EXPECT_TRUE(has(dora, "llama.cpp does not\nuse_dora is true, which gives "));
    const std::string vera = check("llama/adapters/f_vera/final", base_of("llama"));
    EXPECT_TRUE(has(vera, "PEFT loads\nvLLM does not\nit reads only peft_type LORA"));
}

/// vLLM issue 36501: "unsupported LoRA weight"; llama.cpp's converter: "Not a lora_A or lora_B
/// tensor".
TEST_F(LoaderRulesTest, RowsOfTokens) {
    const std::string text = check("llama/adapters/t_tokens/final", base_of("llama"));
    const std::string why =
        " does not\ntrainable_token_indices is [7,250,3,319], which trains rows of the embedding\n";
    EXPECT_TRUE(has(text, "PEFT loads\nvLLM" + why)) << text;
    EXPECT_TRUE(has(text, "SGLang" + why)) << text;
    EXPECT_TRUE(has(text, "llama.cpp" + why)) << text;
}

TEST_F(LoaderRulesTest, RowsThatAreNotThoseOfTheTokens) {
    const auto with = [&](const json& tokens) {
        return check("llama/adapters/t_tokens/final", base_of("llama"),
                     {{"trainable_token_indices", tokens}});
    };
    EXPECT_TRUE(has(with({7, 250}),
                    "PEFT does not\nembed_tokens has no rows [2, 64] of trainable_token_indices, "
                    "but [4, 64]\n"));
    EXPECT_TRUE(has(with({7, 250, 3, 320}),
                    "PEFT does not\ntrainable_token_indices has 320, which is not one of the "
                    "base's 320 tokens\n"));
    EXPECT_TRUE(has(with({{"embed_tokens", {7, 250, 3, 319}}}), "PEFT loads\n"));
    EXPECT_TRUE(has(with({{"lm_head", {7}}}), "lm_head has no rows [1, 64]"));
    ModelSpec wider = base_of("llama");
    wider.hidden_size *= 2;
    EXPECT_TRUE(has(faults("llama/adapters/t_tokens/final", wider),
                    "embed_tokens has no rows [4, 128] of trainable_token_indices, but [4, 64]"));
}

TEST_F(LoaderRulesTest, VectorsOfAnotherShape) {
    ModelSpec base = base_of("llama");
    EXPECT_EQ(faults("llama/adapters/f_dora/final", base), "");
    EXPECT_EQ(faults("llama/adapters/f_vera/final", base), "");
    std::get<AttentionSpec>(base.descriptions[0].mixer).heads *= 2;
    EXPECT_TRUE(has(faults("llama/adapters/f_dora/final", base),
                    "q_proj.lora_magnitude_vector has shape [64], the base and r want [128]"));
    EXPECT_TRUE(has(faults("llama/adapters/f_vera/final", base),
                    "q_proj.vera_lambda_b has shape [64], the base and r want [128]"));
    EXPECT_TRUE(has(check("llama/adapters/f_vera/final", base_of("llama"), {{"r", 3}}),
                    ", the base and r want [3]"));
}

TEST_F(LoaderRulesTest, HeadsOfTiedModels) {
    EXPECT_TRUE(has(check("qwen2/adapters/f_head/final", base_of("qwen2")),
                    "LoRA on lm_head of a model with tied embeddings"));
    EXPECT_FALSE(has(check("llama/adapters/f_head/final", base_of("llama")), "tied embeddings"));
}

TEST_F(LoaderRulesTest, EmbeddingsAndHeadsWhereTheModelOfVllmNamesThem) {
    EXPECT_TRUE(has(check("llama/adapters/f_embed/final", base_of("llama")), "vLLM loads"));
    EXPECT_TRUE(has(check("llama/adapters/f_head/final", base_of("llama")), "vLLM loads"));
    EXPECT_TRUE(
        has(check("qwen2/adapters/f_embed/final", base_of("qwen2")), "vLLM does not\ntensor "));
    EXPECT_TRUE(has(check("qwen2/adapters/f_head/final", base_of("qwen2")),
                    "vLLM does not\nits model of qwen2 has no LoRA on lm_head"));
}

TEST_F(LoaderRulesTest, ModulesOfAnotherBase) {
    const std::string text = check("llama/adapters/a_r4_all/final", base_of("qwen2"));
    for (const char* loader : {"PEFT", "vLLM", "SGLang", "llama.cpp"}) {
        EXPECT_TRUE(has(text, std::string(loader) + " does not"));
    }
    EXPECT_TRUE(has(text, "which the base needs"));
}

// The fault that makes an adapter load and change nothing.
TEST_F(LoaderRulesTest, NamesFollowTheModelAround) {
    EXPECT_EQ(check("gemma3/adapters/a_r4_all/final", base_of("gemma3")), all);
    EXPECT_TRUE(has(check("gemma3/adapters/a_r4_all/final", base_of("gemma3_text")),
                    "is not a module of the base (gemma3_text)"));
    EXPECT_TRUE(has(check("gemma3_text/adapters/a_r4_all/final", base_of("gemma3")),
                    "is not a module of the base (gemma3)"));
}

TEST_F(LoaderRulesTest, KeysAndRanks) {
    const auto llama = base_of("llama");
    const std::string plain = "llama/adapters/a_r4_all/final";
    EXPECT_TRUE(has(check(plain, llama, {{"lora_alpha", nullptr}}),
                    "vLLM does not\nadapter_config.json has no lora_alpha"));
    EXPECT_TRUE(has(check(plain, llama, {{"modules_to_save", {"embed_tokens"}}}),
                    "modules_to_save is [\"embed_tokens\"]"));
    EXPECT_TRUE(
        has(check(plain, llama, {{"init_lora_weights", "pissa"}}), "which changes the base"));
    EXPECT_TRUE(has(check(plain, llama, {{"init_lora_weights", "orthogonal"}}), "vLLM loads"));
    EXPECT_TRUE(has(check(plain, llama, {{"peft_type", "IA4"}}), "which PEFT 0.21 does not know"));
    EXPECT_TRUE(has(check(plain, llama, {{"r", 8}}), "has rank 4, adapter_config.json says 8"));
    EXPECT_TRUE(has(check(plain, llama, {{"target_modules", {"q_proj"}}}),
                    "PEFT does not\nmodel.layers.0.mlp.down_proj is not among target_modules"));
}

/// What no rule is written for is not called unloadable.
TEST_F(LoaderRulesTest, WeightsOfLinearsAsTargetParameters) {
    for (const json& modules : {json{"q_proj"}, json::array(), json()}) {
        const json parameters = modules.size() == 1
                                    ? json{"self_attn.v_proj.weight"}
                                    : json{"q_proj.weight", "self_attn.v_proj.weight"};
        const std::string text =
            check("llama/adapters/c_r3_qv/final", base_of("llama"),
                  {{"target_modules", modules}, {"target_parameters", parameters}});
        EXPECT_TRUE(text.starts_with("PEFT loads")) << modules << text;
        EXPECT_TRUE(has(text, "vLLM does not")) << text;
    }
    const json other{{"target_modules", {"q_proj"}}, {"target_parameters", {"k_proj.weight"}}};
    EXPECT_TRUE(has(check("llama/adapters/c_r3_qv/final", base_of("llama"), other),
                    "v_proj is not among target_modules"));
}

TEST_F(LoaderRulesTest, ModulesThatNothingNames) {
    const std::string text =
        check("llama/adapters/a_r4_all/final", base_of("llama"), {{"target_modules", ""}});
    EXPECT_TRUE(has(text, "PEFT does not")) << text;
}

TEST_F(LoaderRulesTest, OtherTypesOfPeft) {
    check("llama/adapters/a_r4_all/final", base_of("llama"), {{"peft_type", "IA3"}});
    const LoaderResult peft = check_loaders(folder_.file("adapter"), base_of("llama"))[0];
    EXPECT_TRUE(peft.obstacles.empty());
    EXPECT_TRUE(has(peft.unknown, "peft_type is \"IA3\""));
}

TEST_F(LoaderRulesTest, ServersThatNobodyTriedWithDeltaNets) {
    check("qwen3_5/adapters/a_r4_all/final", base_of("qwen3_5"));
    const std::vector<LoaderResult> results =
        check_loaders(folder_.file("adapter"), base_of("qwen3_5"));
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(results[i].loads()) << results[i].loader;
    for (std::size_t i = 2; i < results.size(); ++i) {
        EXPECT_TRUE(has(results[i].unknown, "gated delta nets")) << results[i].loader;
    }
}

TEST_F(LoaderRulesTest, LinearsOfDeltaNetsByKeyHead) {
    check("qwen3_next/adapters/a_r4_all/final", base_of("qwen3_next"));
    const std::vector<LoaderResult> results =
        check_loaders(folder_.file("adapter"), base_of("qwen3_next"));
    EXPECT_TRUE(results[1].loads());
    ASSERT_EQ(results[3].obstacles.size(), 1U);
    EXPECT_TRUE(has(results[3].obstacles[0], "in_proj_qkvz"));
}

TEST_F(LoaderRulesTest, LinearsOfDeltaNetsThatVllmPacks) {
    const auto model = base_of("qwen3_5_moe");
    for (const char* adapter : {"a_r4_all", "b_r8_attn", "c_r3_qv"}) {
        check(std::string("qwen3_5_moe/adapters/") + adapter + "/final", model);
        const LoaderResult vllm = check_loaders(folder_.file("adapter"), model)[1];
        EXPECT_EQ(vllm.loads(), std::string(adapter) != "b_r8_attn");
        if (vllm.loads()) continue;
        EXPECT_TRUE(has(vllm.obstacles.front(),
                        "linear_attn.in_proj_z has LoRA, but in_proj_qkv has none"));
    }
}

/// Tried with PEFT 0.21: what it repeats when it loads, and what it cannot.
TEST_F(LoaderRulesTest, VariantsThatPeftLoads) {
    const auto llama = base_of("llama");
    const std::string plain = "llama/adapters/a_r4_all/final";
    constexpr const char* peft_alone = "PEFT loads\nvLLM does not\ninit_lora_weights is ";
    for (const char* start : {"pissa", "olora"}) {
        const std::string text = check(plain, llama, {{"init_lora_weights", start}});
        EXPECT_TRUE(has(text, peft_alone));
        EXPECT_TRUE(has(text, "SGLang does not"));
        EXPECT_TRUE(has(text, "llama.cpp does not"));
    }
    for (const char* start : {"corda", "lora_ga", "PiSSA", "new"}) {
        EXPECT_TRUE(has(check(plain, llama, {{"init_lora_weights", start}}), "PEFT does not"));
    }
    const std::string alora = check(plain, llama, {{"alora_invocation_tokens", {5, 6}}});
    EXPECT_TRUE(has(alora, "PEFT loads\nvLLM does not\nalora_invocation_tokens is [5,6], with"));
    EXPECT_TRUE(has(alora, "SGLang does not"));
    EXPECT_TRUE(has(alora, "llama.cpp loads"));
    EXPECT_TRUE(has(check(plain, llama, {{"layer_replication", {{0, 2}, {1, 4}}}}),
                    "llama.cpp does not\nlayer_replication"));
    EXPECT_TRUE(has(check(plain, llama, {{"layers_pattern", "layers"}}),
                    "PEFT does not\nlayers_pattern is given without layers_to_transform"));
    EXPECT_TRUE(has(check(plain, llama, {{"target_modules", ".*"}, {"layers_to_transform", 1}}),
                    "PEFT does not\ntarget_modules is a regular expression, which PEFT "));
    EXPECT_EQ(check(plain, llama, {{"new_config", 3}}), all);
    EXPECT_TRUE(has(advice_, "new_config is 3, which is not a key of PEFT 0.21"));
}

/// As PEFT 0.21 writes LoRA on the tensors of all experts, and block-diagonal LoRA.
TEST_F(LoaderRulesTest, ShapesThatPeftAloneHas) {
    const ModelSpec base = base_of("qwen3_moe");
    const std::string from = "qwen3_moe/adapters/a_r4_all/final";
    const auto zeros = [](const std::string& name, std::int64_t rows, std::int64_t cols) {
        return NamedTensor{"base_model.model." + name,
                           {rows, cols},
                           std::vector<float>(static_cast<std::size_t>(rows * cols))};
    };
    const auto check_tensors = [&](const std::vector<NamedTensor>& tensors, const json& changes) {
        check(from, base, changes);
        write_safetensors(folder_.file("adapter/adapter_model.safetensors"), tensors);
        return check_loaders(folder_.file("adapter"), base);
    };
    const std::string experts = "model.layers.1.mlp.experts";
    const std::int64_t all_ranks = base.experts()->count * 4;
    const std::int64_t hidden = base.hidden_size;
    const std::int64_t size = base.experts()->size;
    std::vector<NamedTensor> tensors{
        zeros(experts + ".base_layer.lora_A.weight", all_ranks, hidden),
        zeros(experts + ".base_layer.lora_B.weight", 2 * size, all_ranks),
        zeros(experts + ".lora_A.weight", all_ranks, size),
        zeros(experts + ".lora_B.weight", hidden, all_ranks)};
    const json parameters{
        {"target_modules", json::array()},
        {"target_parameters", {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}}};
    for (const LoaderResult& result : check_tensors(tensors, parameters)) {
        EXPECT_EQ(result.loads(), result.loader == "PEFT") << result.loader;
    }
    tensors[2] = zeros(experts + ".lora_A.weight", all_ranks, size + 1);
    EXPECT_FALSE(check_tensors(tensors, parameters)[0].loads());
    const std::string q = "model.layers.1.self_attn.q_proj";
    tensors = {zeros(q + ".lora_A.weight", 4, hidden / 2),
               zeros(q + ".lora_B.weight", base.attention().q_size(), 4)};
    const json blocks{{"use_bdlora", {{"nblocks", 2}, {"target_modules_bd_a", {"q_proj"}}}}};
    for (const LoaderResult& result : check_tensors(tensors, blocks)) {
        EXPECT_EQ(result.loads(), result.loader == "PEFT") << result.loader;
    }
    EXPECT_FALSE(check_tensors(tensors, {})[0].loads());
    EXPECT_FALSE(check_tensors(tensors, {{"use_bdlora", {{"nblocks", 2}}}})[0].loads());
}

}  // namespace
}  // namespace loratrain
