#include "plan/tensor_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "support/small_model.h"

namespace loratrain::plan_test {

namespace {

ModelSpec model_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                   std::int64_t intermediate_size) {
    ModelSpec model;
    model.hidden_size = 4096;
    model.vocab_size = 1000;
    model.layers = 3;
    model.attention().heads = heads;
    model.attention().kv_heads = kv_heads;
    model.attention().head_dim = head_dim;
    model.dense().size = intermediate_size;
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
using Ranges = std::vector<Slice>;

Ranges ranges_of(const Slices& slices) {
    return {slices.ranges().begin(), slices.ranges().end()};
}

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
    // 16 rows of the vocabulary for each.
    ModelSpec few_words = model_of(32, 8, 128, 14336);
    few_words.vocab_size = 127;
    EXPECT_EQ(valid_up_to_16(few_words), (Degrees{1, 2, 4}));
    // Columns of o and down are cut between weights that share a scale; a row's scale is all's.
    ModelSpec quantized = model_of(32, 8, 16, 64 * 12);
    quantized.quantization = {WeightFormat::nf4, SourceType::bf16};
    EXPECT_EQ(valid_up_to_16(quantized), (Degrees{1, 2, 4}));
    quantized.quantization->format = WeightFormat::e4m3_block;
    EXPECT_EQ(valid_up_to_16(quantized), (Degrees{1, 2}));
    quantized.quantization->format = WeightFormat::int8;
    EXPECT_EQ(valid_up_to_16(quantized), (Degrees{1, 2, 4, 8, 16}));
    ModelSpec fused = model_of(16, 8, 8, 8 * 16);
    fused.dense().fused_gate_up = true;
    EXPECT_EQ(valid_up_to_16(fused), (Degrees{1, 2, 4, 8, 16}));
    // Rows of a key-value head of several lanes would lie beside each lane's own queries.
    fused.attention().fused_qkv = true;
    EXPECT_EQ(valid_up_to_16(fused), (Degrees{1, 2, 4, 8}));
    // One lane has no rule.
    EXPECT_EQ(valid_up_to_16(model_of(3, 3, 5, 7)), (Degrees{1}));
    EXPECT_FALSE(can_shard(model_of(32, 8, 128, 14336), 0));
    EXPECT_EQ(tensor_degrees(model_of(12, 4, 128, 8 * 12)), (Degrees{1, 2, 4, 12}));
}

TEST(TensorShard, SlicesCoverEveryLinearOnce) {
    for (const std::int64_t kv_heads : {8, 2, 1}) {
        const ModelSpec model = model_of(16, kv_heads, 8, 8 * 16);
        for (const std::int32_t count : {1, 2, 4, 8}) {
            const ModelSpec lane = lane_model(model, count);
            const std::int32_t sharers = lanes_per_key_value_head(model, count);
            EXPECT_EQ(sharers, std::max<std::int64_t>(1, count / kv_heads));
            for (int i = 0; i < linear_count; ++i) {
                const auto linear = static_cast<Linear>(i);
                const LinearShape whole = linear_shape(model, linear);
                const LinearShape own = linear_shape(lane, linear);
                std::int64_t next = 0;
                for (std::int32_t index = 0; index < count; ++index) {
                    const auto [out, in] = lane_slice(model, linear, {index, count});
                    EXPECT_EQ(out.count(), own.out);
                    EXPECT_EQ(in.count, own.in);
                    const Slice cut = is_cut_by_columns(linear) ? in : out.only();
                    const Slice kept = is_cut_by_columns(linear) ? out.only() : in;
                    EXPECT_EQ(kept.first, 0);
                    const bool key_value = linear == Linear::k || linear == Linear::v;
                    if (key_value && index % sharers > 0) {
                        EXPECT_EQ(cut.first + cut.count, next);
                        continue;
                    }
                    EXPECT_EQ(cut.first, next);
                    next += cut.count;
                }
                EXPECT_EQ(next, is_cut_by_columns(linear) ? whole.in : whole.out);
            }
        }
    }
}

TEST(TensorShard, ALaneOfDeltaNetsHasItsHeadsOfEveryPart) {
    const ModelSpec by_kind = test::with_delta_nets(test::small_model(), DeltaLinears::by_kind);
    const auto of_lane = [&](Linear linear, std::int32_t index) {
        return lane_slice(by_kind, linear, {index, 2});
    };
    // 2 key heads of 8 and 4 value heads of 12 columns.
    EXPECT_EQ(ranges_of(of_lane(Linear::delta_qkv, 0).out), (Ranges{{0, 8}, {16, 8}, {32, 24}}));
    EXPECT_EQ(ranges_of(of_lane(Linear::delta_qkv, 1).out), (Ranges{{8, 8}, {24, 8}, {56, 24}}));
    EXPECT_EQ(ranges_of(of_lane(Linear::delta_z, 1).out), (Ranges{{24, 24}}));
    EXPECT_EQ(ranges_of(of_lane(Linear::delta_b, 1).out), (Ranges{{2, 2}}));
    EXPECT_EQ(of_lane(Linear::delta_out, 1).in, (Slice{24, 24}));
    EXPECT_EQ(ranges_of(lane_slice(by_kind, Linear::delta_qkv, {0, 1}).out), (Ranges{{0, 80}}));
    const ModelSpec by_head = test::with_delta_nets(test::small_model(), DeltaLinears::by_key_head);
    const auto of_head = [&](Linear linear) { return lane_slice(by_head, linear, {1, 2}).out; };
    EXPECT_EQ(ranges_of(of_head(Linear::delta_qkvz)), (Ranges{{64, 64}}));
    EXPECT_EQ(ranges_of(of_head(Linear::delta_ba)), (Ranges{{4, 4}}));
    const ModelSpec lane = lane_model(by_kind, 2);
    EXPECT_EQ(lane.delta_nets()->key_heads, 1);
    EXPECT_EQ(lane.delta_nets()->value_heads, 2);
    const auto tensor = [&](LayerTensor which) {
        const auto shape = [&](const ModelSpec& model) {
            return layer_tensor_shape(model.layer(0), model.hidden_size, which);
        };
        return lane_slice(shape(by_kind), shape(lane), {1, 2});
    };
    EXPECT_EQ(tensor(LayerTensor::delta_conv).rows, of_lane(Linear::delta_qkv, 1).out);
    EXPECT_EQ(tensor(LayerTensor::delta_conv).columns, (Slice{0, 4}));
    EXPECT_EQ(tensor(LayerTensor::delta_a_log).columns, (Slice{2, 2}));
    EXPECT_EQ(tensor(LayerTensor::delta_norm).columns, (Slice{0, 12}));
    EXPECT_EQ(shard_obstacle(by_kind, 4), "does not divide 2 key heads of gated delta nets");
}

TEST(TensorShard, ALaneHasItsHeadsAndColumnsOfOtherTensors) {
    ModelSpec model = test::small_model();
    AttentionSpec& attention = model.attention();
    attention.qk_norm = attention.qk_norm_whole = attention.sinks = true;
    model.vocab_size = 77;
    ExpertSpec experts{4, 2, 24};
    experts.bias = true;
    model.descriptions.front().mlp = experts;
    const std::int64_t kv_heads = attention.kv_heads;
    for (const std::int32_t count : {2, 4}) {
        const ModelSpec lane = lane_model(model, count);
        for (std::int32_t index = 0; index < count; ++index) {
            const auto columns = [&](LayerTensor which) {
                const auto shape = [&](const ModelSpec& of) {
                    return layer_tensor_shape(of.layer(0), of.hidden_size, which);
                };
                return lane_slice(shape(model), shape(lane), {index, count}).columns;
            };
            const std::int64_t heads = attention.heads / count;
            EXPECT_EQ(columns(LayerTensor::sinks), (Slice{heads * index, heads}));
            EXPECT_EQ(columns(LayerTensor::q_norm),
                      lane_slice(model, Linear::q, {index, count}).out);
            EXPECT_EQ(columns(LayerTensor::k_norm),
                      lane_slice(model, Linear::k, {index, count}).out)
                << kv_heads << " key-value heads on " << count << " lanes";
            const std::int64_t size = 24 / count;
            EXPECT_EQ(ranges_of(columns(LayerTensor::experts_gate_up_bias)),
                      (Ranges{{size * index, size}, {24 + size * index, size}}));
            EXPECT_EQ(columns(LayerTensor::experts_down_bias), (Slice{0, model.hidden_size}));
        }
    }
}

TEST(TensorShard, ALaneOfFusedLinearsHasRowsOfEveryPart) {
    ModelSpec model = test::small_model();
    model.attention().fused_qkv = model.dense().fused_gate_up = true;
    const auto rows = [&](Linear linear) {
        return ranges_of(lane_slice(model, linear, {1, 2}).out);
    };
    EXPECT_EQ(rows(Linear::qkv), (Ranges{{16, 16}, {40, 8}, {56, 8}}));
    EXPECT_EQ(rows(Linear::gate_up), (Ranges{{24, 24}, {72, 24}}));
    EXPECT_EQ(shard_obstacle(model, 4),
              "is more than 2 key-value heads, and one linear makes q, k and v");
}

TEST(TensorShard, ALaneHasItsColumnsOfEveryExpert) {
    ModelSpec model = test::small_model();
    std::vector<LayerSpec> layers(3, model.layer(0));
    layers[1].mlp = ExpertSpec{.count = 5, .per_token = 2, .size = 20, .shared_size = 28};
    model.set_layers(layers);
    const auto of_expert = [&](Linear linear) {
        return lane_slice(model, linear, target_of(model, 1, linear), {1, 2});
    };
    EXPECT_EQ(ranges_of(of_expert(Linear::gate).out), (Ranges{{10, 10}}));
    EXPECT_EQ(of_expert(Linear::gate).in, (Slice{0, 32}));
    EXPECT_EQ(of_expert(Linear::down).in, (Slice{10, 10}));
    EXPECT_EQ(ranges_of(of_expert(Linear::down).out), (Ranges{{0, 32}}));
    EXPECT_EQ(of_expert(Linear::shared_down).in, (Slice{14, 14}));
    // The same linear of another layer is in no expert.
    EXPECT_EQ(lane_slice(model, Linear::down, {1, 2}).in, (Slice{24, 24}));
    EXPECT_EQ(lane_model(model, 2).experts()->size, 10);
    EXPECT_EQ(lane_model(model, 2).experts()->shared_size, 14);
    EXPECT_EQ(lane_model(model, 2).experts()->count, 5);
    std::get<ExpertSpec>(layers[1].mlp).size = 15;
    model.set_layers(layers);
    EXPECT_EQ(shard_obstacle(model, 2),
              "lanes are too many for an intermediate size of 48, experts of 15, a shared expert "
              "of 28, heads of 8 and a vocabulary of 61");
    // Columns that share a scale.
    ModelSpec quantized = test::quantizable_model();
    quantized.quantization = {WeightFormat::nf4, SourceType::bf16};
    quantized.descriptions.front().mlp = ExpertSpec{5, 2, 128};
    EXPECT_EQ(shard_obstacle(quantized, 2), "");
    quantized.descriptions.front().mlp = ExpertSpec{5, 2, 192};
    EXPECT_NE(shard_obstacle(quantized, 2), "");
}

TEST(TensorShard, WholeExperts) {
    ModelSpec model = test::small_model();
    std::vector<LayerSpec> layers(3, model.layer(0));
    ExpertSpec experts{.count = 6, .per_token = 2, .size = 15, .shared_size = 28};
    experts.cut = ExpertCut::whole;
    layers[1].mlp = experts;
    model.set_layers(layers);
    EXPECT_EQ(shard_obstacle(model, 2), "");
    const ModelSpec lane = lane_model(model, 2);
    EXPECT_EQ(lane.experts()->count, 6);
    EXPECT_EQ(lane.experts()->held(), 3);
    EXPECT_EQ(lane.experts()->size, 15);
    EXPECT_EQ(lane.experts()->shared_size, 14);
    EXPECT_EQ(lane_experts(experts, {1, 2}), (Slice{3, 3}));
    EXPECT_EQ(lane_experts(*lane.experts(), {1, 2}), (Slice{3, 3}));
    // Not as many on each lane.
    experts.count = 5;
    EXPECT_EQ(lane_experts(experts, {0, 4}), (Slice{0, 2}));
    EXPECT_EQ(lane_experts(experts, {2, 4}), (Slice{4, 1}));
    EXPECT_EQ(lane_experts(experts, {3, 4}), (Slice{5, 0}));
    for (const Linear linear : {Linear::gate, Linear::down}) {
        const LayerLinear of = target_of(model, 1, linear);
        const LinearSlice own = lane_slice(model, linear, of, 3, {1, 2});
        EXPECT_EQ(own.out.count(), of.shape.out);
        EXPECT_EQ(own.in, (Slice{0, of.shape.in}));
        const LinearSlice other = lane_slice(model, linear, of, 2, {1, 2});
        EXPECT_EQ(other.out.count(), 0);
        EXPECT_EQ(other.in.count, 0);
    }
    const LayerLinear shared = target_of(model, 1, Linear::shared_down);
    EXPECT_EQ(lane_slice(model, Linear::shared_down, shared, {1, 2}).in, (Slice{14, 14}));
    // Half of what a token's experts multiply, on an average.
    const auto in_experts = 2 * 3 * model.hidden_size * 15;
    const auto all = [](const ModelSpec& of) {
        return matmul_parameters(of.layer(1), of.hidden_size);
    };
    ModelSpec without = model;
    std::get<ExpertSpec>(layers[1].mlp).per_token = 0;
    without.set_layers(layers);
    EXPECT_EQ(all(lane) - all(lane_model(without, 2)), in_experts / 2);
}

TEST(TensorShard, RangesThatMeetAreOne) {
    Slices slices(Slice{4, 2});
    slices.add({6, 3});
    slices.add({9, 0});
    EXPECT_EQ(slices, Slices(Slice{4, 5}));
    slices.add({20, 1});
    EXPECT_EQ(slices.count(), 6);
    EXPECT_THROW(slices.only(), Error);
    EXPECT_THROW(slices.add({20, 1}), Error);
    std::vector<std::int64_t> pieces;
    slices.for_each_piece(3, [&](std::int64_t first, std::int64_t place, std::int64_t count) {
        pieces.insert(pieces.end(), {first, place, count});
    });
    EXPECT_EQ(pieces, (std::vector<std::int64_t>{4, 0, 3, 7, 3, 2, 20, 5, 1}));
}

TEST(TensorShard, SlicesCoverTheVocabularyInBlocksOf16) {
    for (const std::int64_t rows : {128, 129, 143, 144, 1000, 32000, 151936}) {
        ModelSpec model = model_of(32, 8, 128, 14336);
        model.vocab_size = rows;
        for (const std::int32_t count : {1, 2, 4, 8}) {
            std::int64_t next = 0;
            std::int64_t most = 0;
            for (std::int32_t index = 0; index < count; ++index) {
                const Slice own = lane_vocabulary(model, {index, count});
                EXPECT_EQ(own.first, next);
                EXPECT_EQ(own.first % 16, 0);
                EXPECT_GT(own.count, 0);
                next += own.count;
                most = std::max(most, own.count);
            }
            EXPECT_EQ(next, rows);
            const std::int64_t room = lane_model(model, count).vocab_size;
            EXPECT_GE(room, most);
            EXPECT_LE(room, most + 15);
        }
    }
}

TEST(TensorShard, OneLaneHasTheModel) {
    const ModelSpec model = model_of(3, 3, 5, 7);
    const ModelSpec lane = lane_model(model, 1);
    EXPECT_EQ(lane.attention().heads, 3);
    EXPECT_EQ(lane.attention().kv_heads, 3);
    EXPECT_EQ(lane.dense().size, 7);
}

TEST(TensorShard, ALaneHasItsShareOfHeadsAndColumns) {
    const ModelSpec model = model_of(32, 8, 128, 14336);
    const ModelSpec lane = lane_model(model, 4);
    EXPECT_EQ(lane.attention().heads, 8);
    EXPECT_EQ(lane.attention().kv_heads, 2);
    EXPECT_EQ(lane.dense().size, 14336 / 4);
    EXPECT_EQ(lane.attention().q_size(), model.attention().q_size() / 4);
    EXPECT_EQ(lane.hidden_size, model.hidden_size);
    EXPECT_EQ(lane.vocab_size, 256);  // 63 blocks: 15, 16, 16, 16
    EXPECT_EQ(lane.layers, model.layers);
    EXPECT_EQ(lane_model(model, 16).attention().kv_heads, 1);
    EXPECT_THROW(lane_model(model, 3), Error);
}

}  // namespace loratrain::plan_test
