#include "plan/tensor_shard.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace loratrain::plan_test {

namespace {

ModelSpec model_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                   std::int64_t intermediate_size) {
    ModelSpec model;
    model.hidden_size = 4096;
    model.vocab_size = 1000;
    model.layers = 3;
    model.heads = heads;
    model.kv_heads = kv_heads;
    model.head_dim = head_dim;
    model.intermediate_size = intermediate_size;
    return model;
}

std::vector<std::int32_t> valid_up_to_16(const ModelSpec& model) {
    std::vector<std::int32_t> valid;
    for (std::int32_t tensor = 1; tensor <= 16; ++tensor) {
        if (can_shard(model, tensor)) valid.push_back(tensor);
    }
    return valid;
}

using Degrees = std::vector<std::int32_t>;

}  // namespace

TEST(TensorShard, ValidDegrees) {
    EXPECT_EQ(valid_up_to_16(model_of(32, 8, 128, 14336)), (Degrees{1, 2, 4, 8, 16}));
    // heads: 12 are divided by 3, 6 and 12 as well; kv_heads: 4 and 3 divide neither way.
    EXPECT_EQ(valid_up_to_16(model_of(12, 4, 128, 8 * 12)), (Degrees{1, 2, 4, 12}));
    // kv_heads | tensor: one key-value head lies on every lane.
    EXPECT_EQ(valid_up_to_16(model_of(12, 1, 128, 8 * 12)), (Degrees{1, 2, 3, 4, 6, 12}));
    // 8 tensor | intermediate_size.
    EXPECT_EQ(valid_up_to_16(model_of(8, 8, 128, 16)), (Degrees{1, 2}));
    // 8 | q_size / tensor.
    EXPECT_EQ(valid_up_to_16(model_of(8, 8, 4, 8 * 16)), (Degrees{1, 2, 4}));
    // One lane has no rule.
    EXPECT_EQ(valid_up_to_16(model_of(3, 3, 5, 7)), (Degrees{1}));
    EXPECT_FALSE(can_shard(model_of(32, 8, 128, 14336), 0));
}

TEST(TensorShard, OneLaneHasTheModel) {
    const ModelSpec model = model_of(3, 3, 5, 7);
    const ModelSpec lane = lane_model(model, 1);
    EXPECT_EQ(lane.heads, 3);
    EXPECT_EQ(lane.kv_heads, 3);
    EXPECT_EQ(lane.intermediate_size, 7);
}

TEST(TensorShard, ALaneHasItsShareOfHeadsAndColumns) {
    const ModelSpec model = model_of(32, 8, 128, 14336);
    const ModelSpec lane = lane_model(model, 4);
    EXPECT_EQ(lane.heads, 8);
    EXPECT_EQ(lane.kv_heads, 2);
    EXPECT_EQ(lane.intermediate_size, 14336 / 4);
    EXPECT_EQ(lane.q_size(), model.q_size() / 4);
    EXPECT_EQ(lane.hidden_size, model.hidden_size);
    EXPECT_EQ(lane.vocab_size, model.vocab_size);
    EXPECT_EQ(lane.layers, model.layers);
    EXPECT_EQ(lane_model(model, 16).kv_heads, 1);
    EXPECT_THROW(lane_model(model, 3), Error);
}

}  // namespace loratrain::plan_test
