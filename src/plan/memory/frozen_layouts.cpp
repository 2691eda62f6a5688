#include "plan/memory/frozen_layouts.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "base/tensor.h"
#include "plan/memory/kind_memory.h"
#include "plan/memory/streamed_layers.h"

namespace loratrain {

namespace {

std::uint64_t linear_bytes(const ReplicaView& view, std::int64_t layer) {
    std::uint64_t bytes = 0;
    for (const LinearGroup group : linear_groups) {
        if (group_shape(view.lane_model, layer, group).count == 0) continue;
        bytes += group_bytes(view, group);
    }
    return bytes;
}

/// Of the linears of layers that do not stream. What other ranks read has room for the groups of
/// any layer.
std::uint64_t resident_linear_bytes(const ReplicaView& view, const StagePlan& stage) {
    const std::uint64_t resident = stage.layer_count - streamed_layers(stage);
    if (!stage.owners.empty()) return resident * streamed_layer(view).buffer_bytes;
    if (view.lane_model.descriptions.size() == 1) return resident * linear_bytes(view, 0);
    std::uint64_t bytes = 0;
    for (std::int32_t l = 0; l < stage.layer_count; ++l) {
        if (!is_streamed(stage, l)) bytes += linear_bytes(view, stage.first_layer + l);
    }
    return bytes;
}

/// Of all layers of a stage: what is resident, and buffers for those that stream.
std::uint64_t layer_weight_bytes(const ReplicaView& view, const StagePlan& stage) {
    const auto buffers = static_cast<std::uint64_t>(stream_buffers(stage));
    std::uint64_t held = 0;
    for_layers(view.lane_model, stage.first_layer, stage.layer_count,
               [&](const LayerSpec& layer, std::int64_t number) {
                   held += static_cast<std::uint64_t>(number) * held_bytes(view, layer);
               });
    return held + resident_linear_bytes(view, stage) + buffers * streamed_layer(view).buffer_bytes;
}

/// `found`: what is there of a linear.
template <class Found>
LinearGroupShape shape_of_linears(LinearGroup group, const Found& found) {
    LinearGroupShape shape;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (linear_group(linear) != group) continue;
        const LayerLinear one = found(linear);
        if (!one.is_there || one.is_in_experts()) continue;
        shape.linears[static_cast<std::size_t>(shape.count++)] = linear;
        shape.in = one.shape.in;
        shape.out += one.shape.out;
    }
    return shape;
}

}  // namespace

LinearGroupShape group_shape(const ModelSpec& model, LinearGroup group) {
    return shape_of_linears(group, [&](Linear linear) { return linear_of(model, linear); });
}

LinearGroupShape group_shape(const ModelSpec& model, std::int64_t layer, LinearGroup group) {
    const LayerSpec& of = model.layer(layer);
    return shape_of_linears(
        group, [&](Linear linear) { return linear_of(of, model.hidden_size, linear); });
}

std::vector<Linear> group_targets(const ModelSpec& model, LinearGroup group) {
    std::vector<Linear> targets;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (linear_group(linear) == group && has_target(model, linear)) targets.push_back(linear);
    }
    return targets;
}

std::int32_t padded_columns(std::int32_t columns) {
    constexpr std::int32_t multiple = 16;
    return round_up(columns, multiple);
}

std::uint64_t compute_bytes(const Plan& plan) {
    return size_of(plan.compute);
}

WeightFormat linear_format(const Plan& plan) {
    return plan.model.quantization ? plan.model.quantization->format : plan.weights;
}

bool weights_are_staged(const Plan& plan) {
    return !plan.fp8_linears && !gemm_reads(traits_of(linear_format(plan)), plan.compute);
}

bool head_is_staged(const Plan& plan) {
    return !gemm_reads(traits_of(plan.weights), plan.compute);
}

std::int64_t column_blocks(const ReplicaView& view, LinearGroup group) {
    const bool joined = view.replica.joined[static_cast<std::size_t>(group)];
    if (!joined || view.plan.fp8_linears) return 1;
    return std::max(1, group_shape(view.lane_model, group).count);
}

MatrixShape augmented_shape(const ReplicaView& view, LinearGroup group) {
    const LinearGroupShape shape = group_shape(view.lane_model, group);
    const std::int64_t r = view.replica.pad_columns;
    return {shape.out + shape.count * r, shape.in + column_blocks(view, group) * r};
}

MatrixShape stored_shape(const ReplicaView& view, LinearGroup group) {
    if (!weights_are_staged(view.plan)) return augmented_shape(view, group);
    const LinearGroupShape shape = group_shape(view.lane_model, group);
    return {shape.out, shape.in};
}

WeightLayout stored_layout(const ReplicaView& view, LinearGroup group) {
    return weight_layout(traits_of(linear_format(view.plan)), stored_shape(view, group));
}

Fp8GroupLayout fp8_group_layout(const ReplicaView& view, LinearGroup group) {
    const LinearGroupShape shape = group_shape(view.lane_model, group);
    const std::int64_t r = view.replica.pad_columns;
    const std::uint64_t e = compute_bytes(view.plan);
    Fp8GroupLayout layout;
    auto take = [&](std::int64_t elements, std::uint64_t element_bytes) {
        const std::uint64_t start = layout.bytes;
        layout.bytes += aligned_array(elements, element_bytes);
        return start;
    };
    layout.codes = take(shape.out * shape.in, 1);
    layout.transposed = take(view.plan.fp8_one_order ? 0 : shape.out * shape.in, 1);
    layout.scales = take(shape.out, size_of(DType::f32));
    layout.b_pad = take(shape.out * r, e);
    layout.a_pad = take(shape.count * r * shape.in, e);
    return layout;
}

std::uint64_t group_bytes(const ReplicaView& view, LinearGroup group) {
    return view.plan.fp8_linears ? fp8_group_layout(view, group).bytes
                                 : stored_layout(view, group).bytes;
}

std::uint64_t unit_scale_bytes(const ReplicaView& view) {
    std::int64_t widest = 0;
    for (const LinearGroup group : linear_groups) {
        widest = std::max(widest, group_shape(view.lane_model, group).in);
    }
    if (const ExpertSpec* experts = view.lane_model.experts()) {
        widest = std::max({widest, experts->held() * view.lane_model.hidden_size,
                           experts->held() * experts->size});
    }
    return view.plan.fp8_linears ? aligned_array(widest, size_of(DType::f32)) : 0;
}

MatrixShape experts_gate_up_shape(const ExpertSpec& experts, std::int64_t hidden_size) {
    return {experts.held() * 2 * experts.size, hidden_size};
}

MatrixShape experts_down_shape(const ExpertSpec& experts, std::int64_t hidden_size) {
    return {experts.held() * hidden_size, experts.size};
}

WeightLayout experts_layout(const Plan& plan, const MatrixShape& shape) {
    return weight_layout(traits_of(linear_format(plan)), shape);
}

Fp8ExpertsLayout fp8_experts_layout(const MatrixShape& shape) {
    const std::uint64_t codes = aligned_array(shape.elements(), 1);
    return {0, codes, 2 * codes, 2 * codes + aligned_array(shape.rows, size_of(DType::f32))};
}

std::uint64_t experts_bytes(const Plan& plan, const MatrixShape& shape) {
    return plan.fp8_linears ? fp8_experts_layout(shape).bytes : experts_layout(plan, shape).bytes;
}

MatrixShape vocabulary_shape(const ModelSpec& model) {
    return {model.vocab_size, model.hidden_size};
}

std::uint64_t vocabulary_bytes(const ReplicaView& view) {
    return weight_layout(traits_of(view.plan.weights), vocabulary_shape(view.lane_model)).bytes;
}

std::uint64_t frozen_bytes(const ReplicaView& view, const StagePlan& stage) {
    const ModelSpec& model = view.lane_model;
    std::uint64_t bytes = layer_weight_bytes(view, stage);
    const std::uint64_t matrix = vocabulary_bytes(view);
    if (stage.has_embedding) bytes += matrix;
    if (stage.has_head) bytes += aligned_array(model.hidden_size, compute_bytes(view.plan));
    if (stage.has_head && !(model.tie_word_embeddings && stage.has_embedding)) bytes += matrix;
    for (const RopeSpec* rope : ropes_of(model)) {
        bytes +=
            aligned_array(frequency_count(model.attention().head_dim, *rope), size_of(DType::f32));
    }
    return bytes + unit_scale_bytes(view);
}

}  // namespace loratrain
