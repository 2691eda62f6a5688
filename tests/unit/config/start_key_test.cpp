#include "config/start_key.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

namespace loratrain {
namespace {

/// The key of an adapter that `change` has made another.
std::optional<StartKey> key_of(const std::function<void(AdapterJob&)>& change, bool tied = false) {
    AdapterJob adapter;
    change(adapter);
    adapter.form = form_of(adapter);
    ModelSpec model;
    model.tie_word_embeddings = tied;
    return start_of(adapter, model);
}

const std::optional<StartKey> plain = key_of([](AdapterJob&) {});

TEST(StartKey, WhateverBeginsAsTheBaseIsAlike) {
    for (const auto& change : std::vector<std::function<void(AdapterJob&)>>{
             [](AdapterJob& a) { a.r = 3; }, [](AdapterJob& a) { a.targets[0] = false; },
             [](AdapterJob& a) { a.targets_head = a.targets_embedding = true; },
             [](AdapterJob& a) { a.init_lora_weights = Initial::gaussian; },
             [](AdapterJob& a) { a.use_rslora = true; },
             [](AdapterJob& a) { a.loraplus_lr_ratio = 4.0; },
             [](AdapterJob& a) { a.peft_type = PeftType::vera; }, [](AdapterJob& a) { a.seed = 3; },
             [](AdapterJob& a) { a.lora_dropout = 0.5; },
             [](AdapterJob& a) { a.neftune_noise_alpha = 5.0; },
             [](AdapterJob& a) { a.loss.label_smoothing_factor = 0.1; },  // of training alone
             [](AdapterJob& a) { a.loss.z_loss = 0.1; },
             [](AdapterJob& a) { a.loss.type = LossType::dft; }}) {
        EXPECT_EQ(key_of(change), plain);
    }
}

TEST(StartKey, WhatBeginsOtherwiseOrIsEvaluatedOtherwiseIsNot) {
    for (const auto& change : std::vector<std::function<void(AdapterJob&)>>{
             [](AdapterJob& a) { a.init_from = "/adapter"; },
             [](AdapterJob& a) { a.init_lora_weights = Initial::pissa; },
             [](AdapterJob& a) { a.init_lora_weights = Initial::olora; },
             [](AdapterJob& a) {
                 a.use_dora = true;
                 a.modules = std::make_shared<const ModuleTable>(ModuleKeys{}, all_linears());
             }}) {
        EXPECT_FALSE(key_of(change));
    }
    for (const auto& change : std::vector<std::function<void(AdapterJob&)>>{
             [](AdapterJob& a) { a.dataset = DatasetId{1}; },
             [](AdapterJob& a) { a.loss.loss = Loss::dpo; },
             [](AdapterJob& a) { a.loss.loss = Loss::cit; },
             [](AdapterJob& a) { a.use_dora = true; }}) {
        EXPECT_TRUE(key_of(change));
        EXPECT_NE(key_of(change), plain);
    }
}

TEST(StartKey, RewardsDependOnTheirKeysAndTheReference) {
    const auto dpo = [](AdapterJob& a) { a.loss.loss = Loss::dpo; };
    EXPECT_EQ(key_of(dpo), key_of([&](AdapterJob& a) {
                  dpo(a);
                  a.r = 4;
              }));
    EXPECT_NE(key_of(dpo), key_of([&](AdapterJob& a) {
                  dpo(a);
                  a.loss.beta = 0.3;
              }));
    EXPECT_NE(key_of(dpo), key_of([&](AdapterJob& a) {
                  dpo(a);
                  a.ref_adapter = "/adapter";
              }));
}

TEST(StartKey, DoraBeginsAsDoraOnTheSameLinears) {
    const auto dora = [](AdapterJob& a) { a.use_dora = true; };
    EXPECT_EQ(key_of(dora), key_of([&](AdapterJob& a) {
                  dora(a);
                  a.r = 4;
              }));
    EXPECT_NE(key_of(dora), key_of([&](AdapterJob& a) {
                  dora(a);
                  a.targets[1] = false;
              }));
}

TEST(StartKey, RowsOfTokensOfATiedHeadBeginAsTheSameRows) {
    const auto with = [](std::vector<std::int32_t> tokens, bool dora = false) {
        return [tokens = std::move(tokens), dora](AdapterJob& a) {
            a.trainable_token_indices = tokens;
            a.use_dora = dora;
        };
    };
    const auto dora = [](AdapterJob& a) { a.use_dora = true; };
    EXPECT_EQ(key_of(with({1, 2})), plain);
    EXPECT_TRUE(key_of(with({1, 2}), true));
    EXPECT_NE(key_of(with({1, 2}), true), plain);
    EXPECT_NE(key_of(with({1, 2}), true), key_of(with({12}), true));
    EXPECT_EQ(key_of(with({1, 2}), true), key_of(with({2, 1}), true));
    EXPECT_NE(key_of(with({1, 2}, true), true), key_of(with({1, 2}), true));
    EXPECT_NE(key_of(with({1, 2}, true), true), key_of(dora, true));
    EXPECT_EQ(key_of(with({1, 2}, true)), key_of(dora));
}

}  // namespace
}  // namespace loratrain
