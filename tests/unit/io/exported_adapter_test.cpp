#include "io/adapters/exported_adapter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace loratrain {
namespace {

AdapterJob difference_job() {
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

TEST(ExportedAdapter, ADifferenceIsLoraOfTwiceTheRank) {
    const std::vector<NamedTensor> exported =
        exported_tensors(difference_job(), ModelSpec{},
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
        AdapterJob adapter = difference_job();
        adapter.use_rslora = rslora;
        ModuleKeys keys;
        keys.rank_pattern = {{"q_proj", 5}};
        keys.alpha_pattern = {{"v_proj", 7.0}};
        adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
        const AdapterJob exported = exported_job(adapter);
        EXPECT_FALSE(is_difference(exported.form));
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            EXPECT_EQ(exported.rank(0, linear), 2 * adapter.rank(0, linear));
            EXPECT_NEAR(exported.scaling(0, linear), adapter.scaling(0, linear), 1e-14);
        }
    }
}

}  // namespace
}  // namespace loratrain
