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

TEST(AdapterForm, ShapesFollowTheAxes) {
    FormTensor vector;
    vector.axes = {Axis::out};
    EXPECT_EQ(tensor_shape(vector, 3, {.in = 12, .out = 8}), std::vector<std::int64_t>{8});
    vector.axes = {};
    EXPECT_TRUE(tensor_shape(vector, 3, {.in = 12, .out = 8}).empty());
}

}  // namespace
}  // namespace loratrain
