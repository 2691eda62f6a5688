#include "config/model_limits.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/model_presets.h"
#include "support/small_model.h"

namespace loratrain {
namespace {

/// "" = nothing keeps the model from it.
std::string limit_text(const ModelSpec& model, Ability ability) {
    const ModelLimit* limit = limit_of(model, ability);
    return limit == nullptr ? "" : limit->what(model);
}

constexpr Ability all_abilities[] = {
    Ability::training,       Ability::fp8,          Ability::merge, Ability::experts,
    Ability::modules,        Ability::dropout,      Ability::dora,  Ability::vera,
    Ability::residual_start, Ability::merge_linears};

TEST(ModelLimits, ALlamaHasNone) {
    for (const Ability ability : all_abilities)
        EXPECT_EQ(limit_text(test::small_model(), ability), "");
}

TEST(ModelLimits, LayersMayDifferInPositionsMasksAndKindsOfMlp) {
    ModelSpec model = test::small_model(2);
    std::vector<LayerSpec> layers(2, model.layer(0));
    layers[1].attention().rope.reset();
    layers[1].attention().sliding_window = 8;
    model.set_layers(layers);
    EXPECT_TRUE(can(model, Ability::training));
    const auto refused = [&](const auto& change) {
        ModelSpec unlike = model;
        std::vector<LayerSpec> changed = layers;
        change(changed[1]);
        unlike.set_layers(changed);
        return limit_text(unlike, Ability::training);
    };
    const char* text = "layers of unlike sizes or kinds are not supported";
    EXPECT_EQ(refused([](LayerSpec& l) { l.attention().head_dim = 16; }), text);
    EXPECT_EQ(refused([](LayerSpec& l) { l.dense().size = 64; }), text);
    layers.resize(3, layers[1]);
    layers[1].mlp = ExpertSpec{4, 2, 16};
    model.layers = 3;
    EXPECT_EQ(refused([](LayerSpec&) {}), "");
    EXPECT_EQ(refused([](LayerSpec& l) { l.mlp = ExpertSpec{4, 2, 8}; }), "");
    layers[0].mlp = layers[1].mlp;
    EXPECT_EQ(refused([](LayerSpec&) {}), "");
    EXPECT_EQ(refused([](LayerSpec& l) { l.mlp = ExpertSpec{4, 2, 8}; }), text);
    EXPECT_EQ(refused([](LayerSpec& l) { l.norms.placement = NormPlacement::after; }), text);
}

TEST(ModelLimits, DeltaNets) {
    ModelSpec model = test::with_delta_nets(test::small_model(4), DeltaLinears::by_kind);
    for (const Ability ability : all_abilities) {
        const bool limited = ability == Ability::fp8;
        EXPECT_EQ(can(model, ability), !limited) << limit_text(model, ability);
    }
    std::vector<LayerSpec> layers(4, model.layer(0));
    layers[1].mixer = DeltaNetSpec{2, 4, 8, 16};
    model.set_layers(layers);
    EXPECT_EQ(limit_text(model, Ability::training),
              "layers of unlike sizes or kinds are not supported");
    layers = test::with_delta_nets(test::small_model(4), DeltaLinears::by_kind).descriptions;
    for (LayerSpec& layer : layers) {
        if (auto* net = std::get_if<DeltaNetSpec>(&layer.mixer)) net->key_dim = 264;
    }
    model.set_layers(layers);
    EXPECT_EQ(limit_text(model, Ability::training),
              "gated delta nets with key heads of more than 256 columns are not supported");
    model.set_layers({4, layers[0]});
    EXPECT_EQ(limit_text(model, Ability::training),
              "models without a layer of attention are not supported");
}

TEST(ModelLimits, ExpertsThatFilesHaveOtherwise) {
    ModelSpec model = test::small_model();
    model.family = "granitemoe";
    ExpertSpec experts{4, 2, 16};
    experts.names = ExpertNames::granitemoe;
    model.descriptions.front().mlp = experts;
    EXPECT_TRUE(can(model, Ability::training) && can(model, Ability::merge));
    EXPECT_EQ(limit_text(model, Ability::experts),
              "LoRA in the experts of a granitemoe model is not computed yet");
}

TEST(ModelLimits, FormsOfMergedFiles) {
    ModelSpec model = test::small_model();
    EXPECT_TRUE(can(model, Ability::merge_linears));
    EXPECT_EQ(limit_text(model, Ability::merge_mxfp4),
              "programs load mxfp4 only in experts of gpt_oss, and a llama model has no experts");
    model.family = "gpt_oss";
    ExpertSpec experts{4, 2, 16};
    experts.names = ExpertNames::gpt_oss;
    model.descriptions.front().mlp = experts;
    EXPECT_TRUE(can(model, Ability::merge_mxfp4));
    EXPECT_EQ(
        limit_text(model, Ability::merge_linears),
        "experts of a gpt_oss model are not written in nf4, int8 and fp8: transformers does not "
        "load such experts");
}

TEST(ModelLimits, RowsOfTokens) {
    ModelSpec model = test::small_model();
    EXPECT_TRUE(can(model, Ability::tokens_on_stages));
    model.tie_word_embeddings = true;
    EXPECT_TRUE(limit_text(model, Ability::tokens_on_stages)
                    .ends_with("stages of a pipeline cannot share rows of tokens"));
}

TEST(ModelLimits, WhatExpertsDoNotGoWith) {
    ModelSpec model = test::small_model();
    model.family = "qwen3_moe";
    model.descriptions.front().mlp = ExpertSpec{4, 2, 16};
    for (const Ability ability : all_abilities) {
        const bool possible = ability == Ability::training || ability == Ability::experts ||
                              ability == Ability::fp8 || ability == Ability::merge;
        EXPECT_EQ(can(model, ability), possible) << limit_text(model, ability);
    }
    EXPECT_EQ(limit_text(model, Ability::dora),
              "LoRA in the experts of a qwen3_moe model cannot be DoRA");
    ModelSpec wrapped = model;
    wrapped.wrapper = "qwen3_5_moe";
    EXPECT_EQ(limit_text(wrapped, Ability::experts),
              "PEFT does not find LoRA in the experts of a qwen3_5_moe model");
    EXPECT_EQ(limit_text(wrapped, Ability::merge),
              "the base is the text model of a qwen3_5_moe, whose other parts are not in it");
    std::vector<LayerSpec> layers(2, model.layer(0));
    layers[1].mlp = DenseSpec{32};
    model.set_layers(layers);
    EXPECT_EQ(limit_text(model, Ability::dora),
              "LoRA in the MLPs of a qwen3_moe model cannot be DoRA");
}

TEST(ModelLimits, GptOss) {
    const ModelSpec model = *model_preset("gpt-oss-20b");
    EXPECT_EQ(limit_text(model, Ability::training), "");
    EXPECT_EQ(limit_text(model, Ability::experts),
              "LoRA in the experts of a gpt_oss model is not computed yet");
    EXPECT_TRUE(can(model, Ability::merge));
}

}  // namespace
}  // namespace loratrain
