#include "io/adapters/adapter_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/weights/hf_config.h"
#include "support/files.h"
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
using test::TempDir;
using test::tiny_spec;

class AdapterConfigTest : public ::testing::Test {
  protected:
    AdapterConfig config_of(const std::string& text) {
        put(folder_.file("adapter_config.json"), text);
        return {folder_.file("adapter_config.json"), spec_};
    }
    AdapterConfig config_with(const json& changes) {
        json config{
            {"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}, {"target_modules", {"q_proj"}}};
        config.update(changes);
        return config_of(config.dump());
    }
    AdapterJob modules_of(const std::string& text) {
        Problems problems;
        const std::optional<AdapterJob> job = config_of(text).modules(problems);
        EXPECT_TRUE(job) << test::text_of(problems.list());
        return job.value_or(AdapterJob{});
    }
    std::string variants(const json& changes, const AdapterForm& form = lora_form()) {
        const AdapterConfig config = config_with(changes);
        std::string text;
        for (const ConfigVariant& variant : config.variants(form))
            text += config.text(variant) + "\n";
        return text;
    }

    TempDir folder_;
    ModelSpec spec_ = tiny_spec();
};

/// PEFT takes the first key that matches.
TEST_F(AdapterConfigTest, PatternsAreReadInTheOrderOfTheFile) {
    constexpr const char* front = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4,
        "target_modules": ["q_proj", "v_proj"], )";
    const AdapterJob wide =
        modules_of(std::string(front) +
                   R"("alpha_pattern": {"q_proj": 32, "model.layers.0.self_attn.q_proj": 6}})");
    EXPECT_DOUBLE_EQ(wide.scaling(0, Linear::q), 16.0);
    EXPECT_DOUBLE_EQ(wide.scaling(0, Linear::v), 2.0);
    const AdapterJob narrow =
        modules_of(std::string(front) +
                   R"("alpha_pattern": {"model.layers.0.self_attn.q_proj": 6, "q_proj": 32}})");
    EXPECT_DOUBLE_EQ(narrow.scaling(0, Linear::q), 3.0);
    const AdapterJob ranks = modules_of(
        std::string(front) + R"("rank_pattern": {"v_proj": 8, ".*_proj": 4, "q_proj": 1}})");
    EXPECT_EQ(ranks.rank(0, Linear::q), 4);
    EXPECT_EQ(ranks.rank(0, Linear::v), 8);
}

TEST_F(AdapterConfigTest, AndOfATextModelInsideOfAnother) {
    const std::string path = golden_path("gemma3/base/config.json");
    spec_ = parse_hf_config(get(path), path);
    const AdapterJob job = modules_of(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4,
        "target_modules": ["q_proj"], "alpha_pattern":
        {"model.language_model.layers.1.self_attn.q_proj": 32, "model.language_model.layers.0.self_attn.q_proj": 6, "q_proj": 8}})");
    EXPECT_DOUBLE_EQ(job.scaling(0, Linear::q), 3.0);
    EXPECT_DOUBLE_EQ(job.scaling(1, Linear::q), 16.0);
}

TEST_F(AdapterConfigTest, WhatIsMoreThanAAndB) {
    const json values{{"use_dora", true},
                      {"lora_bias", true},
                      {"bias", "lora_only"},
                      {"fan_in_fan_out", true},
                      {"modules_to_save", {"lm_head"}},
                      {"layer_replication", {{0, 1}, {0, 1}}},
                      {"use_qalora", true},
                      {"use_bdlora", {{"nblocks", 2}}},
                      {"trainable_token_indices", {1, 2}},
                      {"target_parameters", {"mlp.experts.down_proj"}},
                      {"alora_invocation_tokens", {5, 6}},
                      {"invocation_string", "answer:"},
                      {"monteclora_config", {{"a", 1}}},
                      {"velora_config", {{"a", 1}}},
                      {"arrow_config", {{"a", 1}}},
                      {"kasa_config", {{"a", 1}}},
                      {"megatron_config", {{"a", 1}}}};
    for (const auto& [key, value] : values.items()) {
        EXPECT_TRUE(has(variants({{key, value}}), key + " is " + value.dump() + ", w")) << key;
    }
    for (const char* key : {"kasa_config", "monteclora_config", "arrow_config", "use_bdlora"}) {
        EXPECT_TRUE(has(variants({{key, json::object()}}), "is {}, w")) << key;
    }
    EXPECT_EQ(variants({{"use_dora", true}}, dora_form()), "");
    EXPECT_EQ(variants({{"use_dora", false},
                        {"bias", "none"},
                        {"modules_to_save", nullptr},
                        {"loftq_config", json::object()},
                        {"alora_invocation_tokens", json::array()}}),
              "");
}

TEST_F(AdapterConfigTest, HowAAndBBegan) {
    for (const json& plain : {json(true), json(false), json("gaussian"), json("eva"),
                              json("orthogonal"), json("mica")}) {
        EXPECT_EQ(variants({{"init_lora_weights", plain}}), "");
    }
    for (const char* start :
         {"pissa", "pissa_niter_16", "olora", "OLoRA", "corda", "loftq", "lora_ga"}) {
        EXPECT_TRUE(
            has(variants({{"init_lora_weights", start}}), "which changes the base weights"));
    }
    EXPECT_TRUE(has(variants({{"init_lora_weights", "new"}}), "does not know"));
    const AdapterConfig config = config_with({{"init_lora_weights", "PiSSA"}});
    EXPECT_FALSE(config.variants(lora_form())[0].loads_in(Loader::peft));
}

TEST_F(AdapterConfigTest, KeysThatNoListKnows) {
    EXPECT_TRUE(has(variants({{"new_config", {{"beta", 2}}}}),
                    R"(new_config is {"beta":2}, which is not a key of PEFT 0.21)"));
    EXPECT_EQ(variants({{"new_config", nullptr}, {"use_new", false}}), "");
}

TEST_F(AdapterConfigTest, TyingMattersToATiedHeadAlone) {
    const json changes{{"ensure_weight_tying", true}, {"target_modules", {"embed_tokens"}}};
    EXPECT_EQ(variants(changes), "");
    spec_.tie_word_embeddings = true;
    EXPECT_TRUE(has(variants(changes), "ensure_weight_tying is true, which gives the head"));
    EXPECT_EQ(variants({{"ensure_weight_tying", true}}), "");
}

TEST_F(AdapterConfigTest, WarnsOfWhatMatchesNoModule) {
    const auto warnings = [&](const json& changes) {
        testing::internal::CaptureStderr();
        config_with(changes).warn_of_dead_rules();
        return testing::internal::GetCapturedStderr();
    };
    const std::string text = warnings({{"rank_pattern", {{"q_prj", 8}}},
                                       {"alpha_pattern", {{"^q_proj", 8}, {"q_proj", 2}}},
                                       {"exclude_modules", {"v_prj", "k_proj"}}});
    EXPECT_TRUE(has(text, "adapter_config.json: rank_pattern: 'q_prj' matches no target"));
    EXPECT_TRUE(has(text, "alpha_pattern: '^q_proj' matches no target"));
    EXPECT_TRUE(has(text, "exclude_modules: 'v_prj' matches no module"));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
    EXPECT_TRUE(has(warnings({{"rank_pattern", {{"v_proj", 8}}}}), "'v_proj' matches no target"));
    EXPECT_TRUE(has(warnings({{"exclude_modules", ".*k_prj"}}), "'.*k_prj' matches no module"));
    EXPECT_TRUE(has(warnings({{"alpha_pattern", {{".*q_proj", 3}, {"q_proj", 2}}}}),
                    "alpha_pattern: 'q_proj' comes after patterns that match all its targets"));
    EXPECT_EQ(warnings({{"target_modules", {"q_proj", "v_proj"}},
                        {"alpha_pattern", {{"q_proj", 3}, {"self_attn..*", 2}}}}),
              "");
    EXPECT_EQ(warnings({{"rank_pattern", {{"model.layers.0.self_attn.q_proj", 8}}},
                        {"exclude_modules", nullptr}}),
              "");
}

TEST_F(AdapterConfigTest, WhatCannotBeReadIsNamed) {
    Problems problems;
    EXPECT_FALSE(config_with({{"r", 0}, {"lora_alpha", "x"}, {"rank_pattern", {{"q_proj", 0}}}})
                     .modules(problems));
    const std::string text = test::text_of(problems.list());
    EXPECT_TRUE(has(text, "r is 0, which cannot be read"));
    EXPECT_TRUE(has(text, "lora_alpha is \"x\", which cannot be read"));
    EXPECT_TRUE(has(text, "rank_pattern is {\"q_proj\":0}, which cannot be read"));
}

/// As PEFT: no target_modules are not all modules, and any number is an alpha.
TEST_F(AdapterConfigTest, ModulesThatNothingNames) {
    const auto problem = [&](const json& changes) {
        Problems problems;
        EXPECT_FALSE(config_with(changes).modules(problems)) << changes;
        return test::text_of(problems.list());
    };
    for (const json& none : {json(), json("")}) {
        EXPECT_TRUE(has(problem({{"target_modules", none}}), ", must name the modules that have"));
    }
    EXPECT_TRUE(has(problem({{"layers_pattern", "layers"}}), "PEFT takes beside layers_to_"));
    Problems problems;
    const auto tensors = config_with({{"target_modules", nullptr}, {"target_parameters", {"x.w"}}})
                             .modules(problems);
    ASSERT_TRUE(tensors);
    EXPECT_EQ(tensors->rank(0, Linear::q), 0);
    const auto all =
        config_with({{"target_modules", "All-Linear"}, {"alpha_pattern", {{"q_proj", -2}}}})
            .modules(problems);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->rank(0, Linear::down), all->r);
    EXPECT_EQ(all->scaling(0, Linear::q), -2.0 / all->r);
}

}  // namespace
}  // namespace loratrain
