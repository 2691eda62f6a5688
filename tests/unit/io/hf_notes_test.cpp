#include "io/weights/hf_notes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "support/problems.h"

namespace loratrain {
namespace {

using nlohmann::json;
using test::has;

std::string notes(const json& config) {
    return join(hf_config_notes(config.dump()), "\n");
}

json sized(const std::string& family, const json& changes = json::object()) {
    json config = {{"model_type", family},    {"vocab_size", 100},
                   {"hidden_size", 64},       {"num_hidden_layers", 32},
                   {"intermediate_size", 96}, {"num_attention_heads", 4}};
    config.merge_patch(changes);
    return config;
}

TEST(HfNotes, NothingToSay) {
    EXPECT_EQ(notes(sized("llama", {{"attention_dropout", 0.0}})), "");
    EXPECT_EQ(notes(sized("gemma3_text")), "");
    EXPECT_EQ(notes({{"model_type", "unknown"}}), "");
    EXPECT_EQ(base_dropout_note(""), "");
}

TEST(HfNotes, DropoutOfTheBase) {
    const std::string seed_oss = base_dropout_note(sized("seed_oss").dump());
    EXPECT_TRUE(has(seed_oss,
                    "the base has attention_dropout 0.1 (the family's default) and "
                    "residual_dropout 0.1 (the family's default): transformers applies it"))
        << seed_oss;
    EXPECT_EQ(base_dropout_note(
                  sized("seed_oss", {{"attention_dropout", 0}, {"residual_dropout", 0.0}}).dump()),
              "");
    for (const char* family : {"llama",
                               "mistral",
                               "qwen2",
                               "qwen3",
                               "smollm3",
                               "granite",
                               "ministral3",
                               "olmo2",
                               "olmo3",
                               "exaone4",
                               "hunyuan_v1_dense",
                               "gemma2",
                               "gemma3_text",
                               "glm4",
                               "phi3",
                               "apertus",
                               "arcee",
                               "qwen3_moe",
                               "mixtral",
                               "gpt_oss",
                               "deepseek_v3",
                               "glm4_moe_lite"}) {
        EXPECT_EQ(base_dropout_note(sized(family).dump()), "") << family;
        const json config = sized(family, {{"attention_dropout", 0.25}});
        EXPECT_TRUE(has(base_dropout_note(config.dump()), "the base has attention_dropout 0.25:"))
            << family;
    }
    const std::string phi3 = notes(sized("phi3", {{"resid_pdrop", 0.5}, {"embd_pdrop", 0.125}}));
    EXPECT_TRUE(has(phi3, "the base has resid_pdrop 0.5:")) << phi3;
    EXPECT_TRUE(
        has(phi3, "config.json has embd_pdrop 0.125: transformers does not use this in phi3"))
        << phi3;
    EXPECT_TRUE(has(notes(sized("llama", {{"hidden_dropout", 0.1}})), "hidden_dropout 0.1"));
    EXPECT_TRUE(
        has(notes(sized("ernie4_5", {{"attention_dropout", 0.25}})),
            "config.json has attention_dropout 0.25: transformers does not use this in ernie4_5"));
    const json inner = {{"model_type", "mistral3"},
                        {"text_config", sized("mistral", {{"attention_dropout", 0.5}})}};
    EXPECT_TRUE(has(notes(inner), "the base has attention_dropout 0.5:"));
}

TEST(HfNotes, WhatIsNotUsed) {
    const json caps = {{"attn_logit_softcapping", 2.0}, {"final_logit_softcapping", 3.0}};
    const std::string text = notes(sized("gemma3_text", caps));
    EXPECT_TRUE(
        has(text, "config.json has attn_logit_softcapping 2.0: transformers does not use this"))
        << text;
    EXPECT_EQ(notes(sized("gemma2", caps)), "");
    const json around = {{"model_type", "gemma3"}, {"text_config", sized("gemma3_text", caps)}};
    EXPECT_TRUE(has(notes(around), "attn_logit_softcapping 2.0, final_logit_softcapping 3.0"));
}

TEST(HfNotes, SizesThatTheClassHas) {
    const json gemma3 = {
        {"model_type", "gemma3"},
        {"text_config",
         {{"hidden_size", 2560}, {"intermediate_size", 10240}, {"num_hidden_layers", 34}}}};
    const std::string text = notes(gemma3);
    EXPECT_TRUE(has(text,
                    "the class of gemma3_text: vocab_size 262208, "
                    "num_attention_heads 8"))
        << text;
}

}  // namespace
}  // namespace loratrain
