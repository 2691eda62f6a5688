#include "adapter/adapter_layout.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "support/made_up_form.h"

namespace loratrain::test {
namespace {

using Places = std::vector<std::string>;

/// Two layers, 3 and 4, of an adapter of rank 2 on q, v, o and down; in- and out-features
/// q 8, 8; v 8, 4; o 8, 8; down 12, 8.
class AdapterLayoutTest : public ::testing::Test {
  protected:
    AdapterLayoutTest() {
        model_.hidden_size = 8;
        model_.dense().size = 12;
        model_.layers = 6;
        model_.attention().heads = 2;
        model_.attention().kv_heads = 1;
        model_.attention().head_dim = 4;
        adapter_.name = "a";
        adapter_.r = 2;
        adapter_.targets = {true, false, true, true, false, false, true};
    }
    AdapterLayout layout() const { return {adapter_, model_, {3, 2}}; }
    /// "OFFSET LAYER MODULE TENSOR COUNT" of the tensors of an array.
    Places places(StatePart part) const {
        const AdapterLayout placed = layout();
        Places result;
        for (const PlacedTensor& tensor : placed.tensors(part)) {
            result.push_back(
                cat(tensor.range.first, " ", tensor.layer, " ", module_name(tensor.linear), " ",
                    adapter_.form.tensors[tensor.of_form].name, " ", tensor.range.count));
        }
        return result;
    }

    ModelSpec model_;
    AdapterJob adapter_;
};

TEST_F(AdapterLayoutTest, OfExperts) {
    model_.descriptions.front().mlp = ExpertSpec{2, 1, 6, true};
    adapter_.targets = {true, false, false, false, true, true, true};
    const AdapterLayout placed(adapter_, model_, {3, 1});
    Places names;
    for (const PlacedTensor& tensor : placed.tensors(StatePart::parameters)) {
        names.push_back(cat(tensor.range.first, " ", named_tensor(adapter_, tensor).name));
    }
    const std::string layer = "base_model.model.model.layers.3.";
    const auto at = [&](int first, const char* module) {
        return cat(first, " ", layer, module, ".weight");
    };
    EXPECT_EQ(
        names,
        (Places{
            at(0, "self_attn.q_proj.lora_A"), at(16, "self_attn.q_proj.lora_B"),
            at(32, "mlp.experts.0.gate_proj.lora_A"), at(48, "mlp.experts.1.gate_proj.lora_A"),
            at(64, "mlp.experts.0.up_proj.lora_A"), at(80, "mlp.experts.1.up_proj.lora_A"),
            at(96, "mlp.experts.0.gate_proj.lora_B"), at(108, "mlp.experts.1.gate_proj.lora_B"),
            at(120, "mlp.experts.0.up_proj.lora_B"), at(132, "mlp.experts.1.up_proj.lora_B"),
            at(144, "mlp.experts.0.down_proj.lora_A"), at(156, "mlp.experts.1.down_proj.lora_A"),
            at(168, "mlp.experts.0.down_proj.lora_B"), at(184, "mlp.experts.1.down_proj.lora_B")}));
    EXPECT_EQ(placed.find(3, Linear::up, TensorRole::b)->expert, 0);
    EXPECT_EQ(placed.find(3, Linear::up, TensorRole::b)->range.first, 120);
    adapter_.targets = all_linears();
    EXPECT_EQ(AdapterLayout(adapter_, model_, {3, 1}).count(StatePart::gradients), 112)
        << "all-linear has no experts";
}

TEST_F(AdapterLayoutTest, OfLora) {
    const Places want{
        "0 3 q_proj lora_A 16",     "16 3 v_proj lora_A 16",     "32 3 q_proj lora_B 16",
        "48 3 v_proj lora_B 8",     "56 3 o_proj lora_A 16",     "72 3 o_proj lora_B 16",
        "88 3 down_proj lora_A 24", "112 3 down_proj lora_B 16", "128 4 q_proj lora_A 16",
        "144 4 v_proj lora_A 16",   "160 4 q_proj lora_B 16",    "176 4 v_proj lora_B 8",
        "184 4 o_proj lora_A 16",   "200 4 o_proj lora_B 16",    "216 4 down_proj lora_A 24",
        "240 4 down_proj lora_B 16"};
    for (const StatePart part : {StatePart::parameters, StatePart::first_moments,
                                 StatePart::second_moments, StatePart::gradients}) {
        EXPECT_EQ(places(part), want);
        EXPECT_EQ(layout().count(part), 256);
    }
    const AdapterLayout placed = layout();
    ASSERT_EQ(placed.rate_groups().size(), 1U);
    EXPECT_EQ(placed.rate_groups()[0].first, 0);
    EXPECT_EQ(placed.rate_groups()[0].count, 256);
}

TEST_F(AdapterLayoutTest, FindsByRole) {
    const AdapterLayout placed = layout();
    const PlacedTensor* a = placed.find(4, Linear::down, TensorRole::a);
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->range.first, 216);
    EXPECT_EQ(a->shape, (std::vector<std::int64_t>{2, 12}));
    const PlacedTensor* b = placed.find(3, Linear::v, TensorRole::b);
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(b->range.first, 48);
    EXPECT_EQ(b->shape, (std::vector<std::int64_t>{4, 2}));
    EXPECT_EQ(placed.find(3, Linear::k, TensorRole::a), nullptr);
    EXPECT_EQ(placed.find(2, Linear::q, TensorRole::a), nullptr);
    EXPECT_EQ(placed.find(5, Linear::q, TensorRole::a), nullptr);
    EXPECT_EQ(placed.find(3, Linear::q, test::made_up_vector), nullptr);
}

TEST_F(AdapterLayoutTest, RateGroupsThenFrozenTensors) {
    adapter_.form = made_up_form();
    const Places trained{
        "0 3 q_proj lora_A 16",     "16 3 v_proj lora_A 16",     "32 3 q_proj m 8",
        "40 3 v_proj m 4",          "44 3 o_proj lora_A 16",     "60 3 o_proj m 8",
        "68 3 down_proj lora_A 24", "92 3 down_proj m 8",        "100 4 q_proj lora_A 16",
        "116 4 v_proj lora_A 16",   "132 4 q_proj m 8",          "140 4 v_proj m 4",
        "144 4 o_proj lora_A 16",   "160 4 o_proj m 8",          "168 4 down_proj lora_A 24",
        "192 4 down_proj m 8",      "200 3 q_proj lora_B 16",    "216 3 v_proj lora_B 8",
        "224 3 o_proj lora_B 16",   "240 3 down_proj lora_B 16", "256 4 q_proj lora_B 16",
        "272 4 v_proj lora_B 8",    "280 4 o_proj lora_B 16",    "296 4 down_proj lora_B 16"};
    Places all = trained;
    for (const char* place :
         {"312 3 q_proj s 2", "314 3 v_proj s 2", "316 3 o_proj s 2", "318 3 down_proj s 2",
          "320 4 q_proj s 2", "322 4 v_proj s 2", "324 4 o_proj s 2", "326 4 down_proj s 2"}) {
        all.emplace_back(place);
    }
    EXPECT_EQ(places(StatePart::parameters), all);
    EXPECT_EQ(places(StatePart::gradients), trained);
    const AdapterLayout placed = layout();
    EXPECT_EQ(placed.count(StatePart::parameters), 328);
    EXPECT_EQ(placed.count(StatePart::first_moments), 312);
    ASSERT_EQ(placed.rate_groups().size(), 2U);
    EXPECT_EQ(placed.rate_groups()[0].count, 200);
    EXPECT_EQ(placed.rate_groups()[1].first, 200);
    EXPECT_EQ(placed.rate_groups()[1].count, 112);
    EXPECT_TRUE(placed.is_trained(*placed.find(3, Linear::q, test::made_up_vector)));
    EXPECT_FALSE(placed.is_trained(*placed.find(3, Linear::q, test::made_up_frozen)));
}

TEST_F(AdapterLayoutTest, NamesOfFiles) {
    adapter_.form = made_up_form();
    adapter_.targets = {false, false, false, false, false, false, true};
    const auto tensors = adapter_tensors(adapter_, model_, {5, 1}, StatePart::parameters);
    const std::string module = "base_model.model.model.layers.5.mlp.down_proj.";
    ASSERT_EQ(tensors.size(), 4U);
    EXPECT_EQ(tensors[0].name, module + "lora_A.weight");
    EXPECT_EQ(tensors[1].name, module + "lora_magnitude_vector");
    EXPECT_EQ(tensors[1].shape, (std::vector<std::int64_t>{8}));
    EXPECT_EQ(tensors[2].name, module + "lora_B.weight");
    EXPECT_EQ(tensors[3].name, module + "lora_scale");
    EXPECT_EQ(adapter_tensors(adapter_, model_, {5, 1}, StatePart::gradients).size(), 3U);
}

TEST_F(AdapterLayoutTest, EveryRateGroupNeedsARate) {
    adapter_.form = made_up_form();
    adapter_.form.rates = {1.0};
    EXPECT_THROW(layout(), Error);
}

}  // namespace
}  // namespace loratrain::test
