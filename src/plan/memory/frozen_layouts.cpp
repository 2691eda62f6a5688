#include "plan/memory/frozen_layouts.h"

#include <algorithm>
#include <span>

#include "base/alignment.h"
#include "base/shape.h"
#include "plan/memory/residency.h"

namespace loratrain {

namespace {

std::uint64_t norm_and_bias_bytes(const ReplicaView& view) {
    const ModelSpec& model = view.lane_model;
    const std::uint64_t e = compute_bytes(view.plan);
    const std::uint64_t norms = model.norms == NormPlacement::both ? 4 : 2;
    std::uint64_t bytes = norms * aligned_array(model.hidden_size, e);
    if (model.qk_norm) {
        bytes += aligned_array(model.q_norm_size(), e) + aligned_array(model.k_norm_size(), e);
    }
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (has_bias(model, linear)) bytes += aligned_array(linear_shape(model, linear).out, e);
    }
    return bytes;
}

/// Of a layer, its router too: they do not stream.
std::uint64_t expert_bytes(const ReplicaView& view) {
    const ModelSpec& model = view.lane_model;
    if (!model.has_experts()) return 0;
    return aligned_array(model.experts.count * model.hidden_size, compute_bytes(view.plan)) +
           experts_layout(view.plan, experts_gate_up_shape(model)).bytes +
           experts_layout(view.plan, experts_down_shape(model)).bytes;
}

std::uint64_t linear_bytes(const ReplicaView& view) {
    std::uint64_t bytes = 0;
    for (int g = 0; g < linear_group_count; ++g) {
        const auto group = static_cast<LinearGroup>(g);
        bytes += view.plan.fp8_linears ? fp8_group_layout(view, group).bytes
                                       : stored_layout(view, group).bytes;
    }
    return bytes;
}

/// Of all layers of a stage: what is resident, and buffers for those that stream.
std::uint64_t layer_weight_bytes(const ReplicaView& view, const StagePlan& stage) {
    const auto layers = static_cast<std::uint64_t>(stage.layer_count);
    const auto streamed = static_cast<std::uint64_t>(streamed_layers(stage));
    const auto buffers = static_cast<std::uint64_t>(stream_buffers(stage));
    return layers * (norm_and_bias_bytes(view) + expert_bytes(view)) +
           (layers - streamed) * linear_bytes(view) + buffers * streamed_layer(view).buffer_bytes;
}

/// What a group may have.
std::span<const Linear> candidates(LinearGroup group) {
    static constexpr std::array qkv{Linear::q, Linear::k, Linear::v, Linear::qkv};
    static constexpr std::array o{Linear::o};
    static constexpr std::array gate_up{Linear::gate, Linear::up, Linear::gate_up};
    static constexpr std::array down{Linear::down};
    switch (group) {
        case LinearGroup::qkv:
            return qkv;
        case LinearGroup::o:
            return o;
        case LinearGroup::gate_up:
            return gate_up;
        case LinearGroup::down:
            return down;
    }
    return {};
}

}  // namespace

LinearGroupShape group_shape(const ModelSpec& model, LinearGroup group) {
    LinearGroupShape shape;
    for (const Linear linear : candidates(group)) {
        if (!has_linear(model, linear)) continue;
        shape.linears[static_cast<std::size_t>(shape.count++)] = linear;
        shape.in = linear_shape(model, linear).in;
        shape.out += linear_shape(model, linear).out;
    }
    return shape;
}

std::vector<Linear> group_targets(const ModelSpec& model, LinearGroup group) {
    std::vector<Linear> targets;
    for (const Linear linear : candidates(group)) {
        if (has_target(model, linear)) targets.push_back(linear);
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

std::uint64_t unit_scale_bytes(const ReplicaView& view) {
    std::int64_t widest = 0;
    for (int g = 0; g < linear_group_count; ++g) {
        widest = std::max(widest, group_shape(view.lane_model, static_cast<LinearGroup>(g)).in);
    }
    return view.plan.fp8_linears ? aligned_array(widest, size_of(DType::f32)) : 0;
}

MatrixShape experts_gate_up_shape(const ModelSpec& model) {
    return {model.experts.count * 2 * model.experts.size, model.hidden_size};
}

MatrixShape experts_down_shape(const ModelSpec& model) {
    return {model.experts.count * model.hidden_size, model.experts.size};
}

WeightLayout experts_layout(const Plan& plan, const MatrixShape& shape) {
    return weight_layout(traits_of(linear_format(plan)), shape);
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
    const std::uint64_t rotary_tables = model.sliding_rope ? 2 : 1;
    bytes += rotary_tables * aligned_array(model.head_dim / 2, size_of(DType::f32)) +
             unit_scale_bytes(view);
    return bytes;
}

}  // namespace loratrain
