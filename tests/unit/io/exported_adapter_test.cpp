#include "io/adapters/exported_adapter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace loratrain {
namespace {

AdapterJob residual_start_job() {
    AdapterJob adapter;
    adapter.r = 2;
    adapter.lora_alpha = 3.0;
    adapter.init_lora_weights = Initial::pissa;
    adapter.pissa_niter = 4;
    adapter.form = form_of(adapter);
    return adapter;
}

TEST(ExportedAdapter, OthersAreAsTheyAre) {
    AdapterJob adapter;
    EXPECT_EQ(exported_job(adapter).r, adapter.r);
    const std::vector<NamedTensor> tensors{{"x.lora_A.weight", {1, 2}, {1.0F, 2.0F}}};
    EXPECT_EQ(exported_tensors(adapter, ModelSpec{}, tensors)[0].values, tensors[0].values);
}

TEST(ExportedAdapter, AResidualStartIsLoraOfTwiceTheRank) {
    const std::vector<NamedTensor> exported =
        exported_tensors(residual_start_job(), ModelSpec{},
                         {{"m.lora_A.weight", {2, 3}, {1, 2, 3, 4, 5, 6}},
                          {"m.lora_B.weight", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}},
                          {"m.lora_start_A.weight", {2, 3}, {7, 8, 9, 10, 11, 12}},
                          {"m.lora_start_B.weight", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}}});
    ASSERT_EQ(exported.size(), 2U);
    EXPECT_EQ(exported[0].shape, (std::vector<std::int64_t>{4, 3}));
    EXPECT_EQ(exported[0].values, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
    EXPECT_EQ(exported[1].shape, (std::vector<std::int64_t>{4, 4}));
    EXPECT_EQ(exported[1].values,
              (std::vector<float>{1, 2, -1, -5, 3, 4, -2, -6, 5, 6, -3, -7, 7, 8, -4, -8}));
}

TEST(ExportedAdapter, ScalingsStay) {
    for (const bool rslora : {false, true}) {
        AdapterJob adapter = residual_start_job();
        adapter.use_rslora = rslora;
        ModuleKeys keys;
        keys.rank_pattern = {{"q_proj", 5}};
        keys.alpha_pattern = {{"v_proj", 7.0}};
        adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
        const AdapterJob exported = exported_job(adapter);
        EXPECT_FALSE(has_residual_start(exported.form));
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            EXPECT_EQ(exported.rank(0, linear), 2 * adapter.rank(0, linear));
            EXPECT_NEAR(exported.scaling(0, linear), adapter.scaling(0, linear), 1e-14);
        }
    }
}

AdapterJob plain_job(AdapterJob adapter) {
    adapter.plain_export = true;
    adapter.form = form_of(adapter);
    return adapter;
}

ModelSpec one_layer() {
    ModelSpec model;
    model.layers = 1;
    return model;
}

constexpr const char* q_path = "base_model.model.model.layers.0.self_attn.q_proj";
constexpr const char* v_path = "base_model.model.model.layers.0.self_attn.v_proj";

TEST(ExportedAdapter, PlainHasNeitherRsloraNorPatterns) {
    AdapterJob adapter;
    adapter.r = 4;
    adapter.lora_alpha = 6.0;
    adapter.use_rslora = true;
    const AdapterJob alone = exported_job(plain_job(adapter));
    EXPECT_FALSE(alone.use_rslora);
    EXPECT_EQ(alone.r, 4);
    EXPECT_DOUBLE_EQ(alone.lora_alpha, 12.0);  // 6 / sqrt(4) = 12 / 4
    ModuleKeys keys;
    keys.rank_pattern = {{"v_proj", 1}, {"o_proj", 6}};
    keys.alpha_pattern = {{"v_proj", 4.5}};
    adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
    const AdapterJob folded = exported_job(plain_job(adapter));
    EXPECT_EQ(folded.r, 6);
    EXPECT_DOUBLE_EQ(folded.lora_alpha, 18.0);
    for (const Linear linear : {Linear::q, Linear::v, Linear::o}) {
        EXPECT_EQ(folded.rank(0, linear), 6);
        EXPECT_DOUBLE_EQ(folded.scaling(0, linear), 3.0);
    }
}

// What a module adds to W x, scaling B A, is the same.
TEST(ExportedAdapter, PlainFactorsArePaddedAndRescaled) {
    AdapterJob adapter;
    adapter.r = 2;
    adapter.lora_alpha = 4.0;
    ModuleKeys keys;
    keys.rank_pattern = {{"v_proj", 1}};
    keys.alpha_pattern = {{"v_proj", 3.0}};
    adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
    const std::vector<NamedTensor> exported =
        exported_tensors(plain_job(adapter), one_layer(),
                         {{std::string(q_path) + ".lora_A.weight", {2, 3}, {1, 2, 3, 4, 5, 6}},
                          {std::string(q_path) + ".lora_B.weight", {2, 2}, {1, 2, 3, 4}},
                          {std::string(v_path) + ".lora_A.weight", {1, 3}, {1, 2, 3}},
                          {std::string(v_path) + ".lora_B.weight", {2, 1}, {4, 6}}});
    ASSERT_EQ(exported.size(), 4U);
    EXPECT_EQ(exported[0].values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(exported[1].values, (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(exported[2].shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(exported[2].values, (std::vector<float>{1, 2, 3, 0, 0, 0}));
    EXPECT_EQ(exported[3].shape, (std::vector<std::int64_t>{2, 2}));
    EXPECT_EQ(exported[3].values, (std::vector<float>{6, 0, 9, 0}));  // 3 / 1 beside 4 / 2
}

// The embedding and the head are modules like others.
TEST(ExportedAdapter, PlainHasWhatIsBesideTheLayers) {
    AdapterJob adapter;
    adapter.r = 2;
    adapter.lora_alpha = 4.0;
    adapter.targets_head = true;
    adapter.targets_embedding = true;
    ModuleKeys keys;
    keys.rank_pattern = {{"embed_tokens", 1}};
    keys.alpha_pattern = {{"embed_tokens", 3.0}, {"lm_head", 8.0}};
    adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
    const std::string embedding = "base_model.model.model.embed_tokens";
    const std::string head = "base_model.model.lm_head";
    const std::vector<NamedTensor> exported =
        exported_tensors(plain_job(adapter), one_layer(),
                         {{embedding + ".lora_embedding_A", {1, 3}, {1, 2, 3}},
                          {embedding + ".lora_embedding_B", {2, 1}, {4, 6}},
                          {head + ".lora_A.weight", {2, 2}, {1, 2, 3, 4}},
                          {head + ".lora_B.weight", {1, 2}, {1, 2}}});
    EXPECT_EQ(exported[0].values, (std::vector<float>{1, 2, 3, 0, 0, 0}));
    EXPECT_EQ(exported[1].values, (std::vector<float>{6, 0, 9, 0}));  // 3 / 1 beside 4 / 2
    EXPECT_EQ(exported[2].values, (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(exported[3].values, (std::vector<float>{2, 4}));  // 8 / 2 beside 4 / 2
}

TEST(ExportedAdapter, NamesFollowTheModelAround) {
    ModelSpec model = one_layer();
    model.wrapper = "gemma3";
    const std::vector<NamedTensor> exported = exported_tensors(
        AdapterJob{}, model, {{std::string(q_path) + ".lora_A.weight", {1, 1}, {1}}});
    EXPECT_EQ(exported[0].name,
              "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight");
}

}  // namespace
}  // namespace loratrain
