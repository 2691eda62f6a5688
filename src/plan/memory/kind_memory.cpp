#include "plan/memory/kind_memory.h"

#include <algorithm>
#include <variant>

#include "base/arithmetic.h"

namespace loratrain {

namespace {

using Slot = LayerSlotLayout;

// ---- Attention

void add_saved(const AttentionSpec& attention, const ReplicaView& view, SavedArrays& saved) {
    const std::uint64_t e = compute_bytes(view.plan);
    const std::int64_t r = view.replica.saved_columns;
    const LinearGroupShape qkv = group_shape(view.lane_model, LinearGroup::qkv);
    saved.add({&Slot::qkv, qkv.out, e});
    if (attention.qk_norm) saved.add({&Slot::qk_raw, attention.q_size() + attention.kv_size(), e});
    saved.add({&Slot::o, attention.q_size() + r, e});
    saved.add({&Slot::lse, attention.heads, size_of(DType::f32)});
    saved.add({&Slot::s_qkv, qkv.count * r, e});
}

// ---- DenseSpec

void add_saved(const DenseSpec& /*its groups*/, const ReplicaView& view, SavedArrays& saved) {
    const std::uint64_t e = compute_bytes(view.plan);
    const std::int64_t r = view.replica.saved_columns;
    const LinearGroupShape gate_up = group_shape(view.lane_model, LinearGroup::gate_up);
    saved.add({&Slot::gate_up, gate_up.out, e});
    saved.add({&Slot::s_gate_up, gate_up.count * r, e});
    saved.add({&Slot::s_down, r, e});
}

std::uint64_t held_beside_linears(const DenseSpec& /*nothing*/, const ReplicaView& /*view*/) {
    return 0;
}

void add_own_scratch(const DenseSpec& /*none*/, const ReplicaView& /*view*/,
                     WorkspaceLayout& /*layout*/) {}

// ---- Experts

void add_saved(const ExpertSpec& experts, const ReplicaView& view, SavedArrays& saved) {
    const std::uint64_t e = compute_bytes(view.plan);
    saved.add({&Slot::gate_up, experts.per_token * 2 * experts.size, e});
    saved.add({&Slot::s_down, view.replica.saved_columns, e});
    saved.add({&Slot::routes, 0, 0, routes_layout(view, experts).bytes});
}

std::uint64_t held_beside_linears(const ExpertSpec& experts, const ReplicaView& view) {
    const std::int64_t hidden = view.lane_model.hidden_size;
    return aligned_array(experts.count * hidden, compute_bytes(view.plan)) +
           experts_layout(view.plan, experts_gate_up_shape(experts, hidden)).bytes +
           experts_layout(view.plan, experts_down_shape(experts, hidden)).bytes;
}

void add_own_scratch(const ExpertSpec& experts, const ReplicaView& view, WorkspaceLayout& layout) {
    const std::uint64_t e = compute_bytes(view.plan);
    const std::int64_t t = view.replica.microbatch_tokens;
    const std::int64_t copies = t * experts.per_token;
    layout.router = aligned_array(t * experts.count, e);
    layout.expert_rows = aligned_array(copies * view.lane_model.hidden_size, e);
    layout.expert_product = aligned_array(copies * experts.size, e);
    if (!joins_experts(view, experts) || view.plan.expert_lora) {
        layout.expert_inner = layout.expert_product;
    }
    layout.expert_gradient = aligned_array(copies * 2 * experts.size, e);
    layout.expert_weights = aligned_array(copies, size_of(DType::f32));
    if (!view.plan.expert_lora) return;
    layout.expert_input = layout.expert_rows;
    layout.expert_s = aligned_array(copies * 2 * view.replica.saved_columns, e);
    layout.expert_ds = layout.expert_s;
}

// ---- any layer

std::uint64_t norm_and_bias_bytes(const ReplicaView& view, const LayerSpec& layer) {
    const std::uint64_t e = compute_bytes(view.plan);
    const std::int64_t hidden = view.lane_model.hidden_size;
    std::uint64_t bytes = 0;
    for (int i = 0; i < layer_norm_count; ++i) {
        bytes += aligned_array(norm_size(layer, hidden, static_cast<LayerNorm>(i)), e);
    }
    for (int i = 0; i < linear_count; ++i) {
        const LayerLinear linear = linear_of(layer, hidden, static_cast<Linear>(i));
        if (linear.bias) bytes += aligned_array(linear.shape.out, e);
    }
    return bytes;
}

}  // namespace

SavedArrays saved_arrays(const ReplicaView& view, const LayerSpec& layer) {
    SavedArrays saved;
    const auto add = [&](const auto& kind) { add_saved(kind, view, saved); };
    std::visit(add, layer.mixer);
    const std::uint64_t e = compute_bytes(view.plan);
    const std::int64_t hidden = view.lane_model.hidden_size;
    saved.add({&Slot::x2, hidden, e});
    if (layer.norms.has_after()) {
        saved.add({&Slot::attention_made, hidden, e});
        saved.add({&Slot::mlp_made, hidden, e});
    }
    std::visit(add, layer.mlp);
    return saved;
}

std::uint64_t held_bytes(const ReplicaView& view, const LayerSpec& layer) {
    const auto of = [&](const auto& kind) { return held_beside_linears(kind, view); };
    return norm_and_bias_bytes(view, layer) + std::visit(of, layer.mlp);
}

void add_scratch(const ReplicaView& view, const LayerSpec& layer, WorkspaceLayout& layout) {
    if (layer.norms.has_after()) {
        layout.branch =
            aligned_array(view.replica.microbatch_tokens *
                              (view.lane_model.hidden_size + view.replica.saved_columns),
                          compute_bytes(view.plan));
    }
    std::visit([&](const auto& kind) { add_own_scratch(kind, view, layout); }, layer.mlp);
}

std::int64_t largest_product(const LayerSpec& layer, std::int64_t hidden_size) {
    const ExpertSpec* experts = layer.experts();
    return experts != nullptr ? 2 * experts->size * hidden_size : 0;
}

std::int64_t widest_product(const ReplicaView& view, const LayerSpec& layer) {
    const ExpertSpec* experts = layer.experts();
    if (experts == nullptr) return 0;
    const std::int64_t of_expert = joins_experts(view, *experts) ? 0 : 2 * experts->size;
    return view.lane_model.hidden_size + std::max(of_expert, experts->count);
}

}  // namespace loratrain
