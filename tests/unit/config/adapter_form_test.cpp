#include "config/adapter_form.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

TEST(AdapterForm, LoraIsAAndB) {
    const AdapterForm form = lora_form();
    ASSERT_EQ(form.tensors.size(), 2U);
    const LinearShape linear{.in = 12, .out = 8};
    EXPECT_EQ(tensor_shape(form.tensors[0], 3, linear), (std::vector<std::int64_t>{3, 12}));
    EXPECT_EQ(tensor_shape(form.tensors[1], 3, linear), (std::vector<std::int64_t>{8, 3}));
    EXPECT_EQ(form.tensors[0].role, TensorRole::a);
    EXPECT_EQ(form.tensors[1].role, TensorRole::b);
    EXPECT_EQ(form.tensors[0].initial, Initial::uniform);
    EXPECT_EQ(form.tensors[1].initial, Initial::zeros);
    EXPECT_EQ(form.tensors[0].peft_suffix, "lora_A.weight");
    EXPECT_EQ(form.tensors[1].peft_suffix, "lora_B.weight");
    for (const FormTensor& tensor : form.tensors) {
        EXPECT_TRUE(tensor.trained);
        EXPECT_EQ(tensor.rate_group, 0U);
    }
    EXPECT_EQ(form.rates, std::vector<double>{1.0});
}

TEST(AdapterForm, DoraHasAMagnitudePerOutput) {
    const AdapterForm form = dora_form();
    ASSERT_EQ(form.tensors.size(), 3U);
    const FormTensor& m = form.tensors[2];
    EXPECT_EQ(m.role, TensorRole::magnitude);
    EXPECT_EQ(tensor_shape(m, 3, {.in = 12, .out = 8}), std::vector<std::int64_t>{8});
    EXPECT_EQ(m.initial, Initial::norms);
    EXPECT_TRUE(m.trained);
    EXPECT_EQ(m.peft_suffix, "lora_magnitude_vector");
    EXPECT_EQ(form.peft_switches, std::vector<std::string>{"use_dora"});
    EXPECT_TRUE(form.keeps_norms);
}

TEST(AdapterForm, VeraTrainsTwoVectors) {
    const AdapterForm form = vera_form(0.25);
    ASSERT_EQ(form.tensors.size(), 2U);
    const LinearShape linear{.in = 12, .out = 8};
    EXPECT_EQ(tensor_shape(form.tensors[0], 3, linear), std::vector<std::int64_t>{3});
    EXPECT_EQ(tensor_shape(form.tensors[1], 3, linear), std::vector<std::int64_t>{8});
    EXPECT_EQ(form.tensors[0].initial, Initial::constant);
    EXPECT_EQ(form.tensors[0].value, 0.25);
    EXPECT_EQ(form.tensors[1].initial, Initial::zeros);
    EXPECT_EQ(form.tensors[0].peft_suffix, "vera_lambda_d");
    EXPECT_EQ(form.tensors[1].peft_suffix, "vera_lambda_b");
    EXPECT_EQ(form.peft_type, "VERA");
    EXPECT_TRUE(form.projects);
}

TEST(AdapterForm, ShapesFollowTheAxes) {
    FormTensor vector;
    vector.axes = {Axis::out};
    EXPECT_EQ(tensor_shape(vector, 3, {.in = 12, .out = 8}), std::vector<std::int64_t>{8});
    vector.axes = {};
    EXPECT_TRUE(tensor_shape(vector, 3, {.in = 12, .out = 8}).empty());
}

}  // namespace
}  // namespace loratrain
