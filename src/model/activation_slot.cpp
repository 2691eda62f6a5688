#include "model/activation_slot.h"

namespace loratrain {

ActivationSlot::ActivationSlot(const ReplicaView& view, const StagePlan& stage,
                               const Workspace& workspace, Backend& backend)
    : view_(view),
      dtype_(backend.compute_dtype()),
      layer_count_(stage.layer_count),
      kept_layers_(kept_layers(view, stage)),
      offloaded_layers_(offloaded_layers(view, stage)),
      offload_buffers_(offload_buffers(view, stage)),
      keeping_(layer_keeping(view, stage)),
      workspace_(workspace),
      layout_(layer_slot_layout(view)),
      memory_(backend.allocate(slot_bytes(view, stage), "activation slot")),
      tables_(view, stage, backend, memory_.data()) {}

TensorView ActivationSlot::view(std::uint64_t offset, std::int64_t tokens, std::int64_t columns,
                                std::int64_t ld) const {
    return {memory_.as<char>() + offset, dtype_, tokens, columns, ld};
}

std::uint64_t ActivationSlot::layer_offset(std::int32_t kept) const {
    return table_bytes(view_) +
           static_cast<std::uint64_t>(layer_count_ + 1) * boundary_bytes(view_) +
           static_cast<std::uint64_t>(kept) * layout_.bytes;
}

char* ActivationSlot::start_of(const LayerKeeping& keeping) const {
    switch (keeping.how) {
        case Keeping::kept:
            return memory_.as<char>() + layer_offset(keeping.place);
        case Keeping::offloaded:
            return static_cast<char*>(workspace_.offload(keeping.place % offload_buffers_));
        case Keeping::recomputed:
            break;
    }
    return static_cast<char*>(workspace_.layer());
}

TensorView ActivationSlot::boundary(std::int32_t i, std::int64_t tokens) const {
    const std::uint64_t offset =
        table_bytes(view_) + static_cast<std::uint64_t>(i) * boundary_bytes(view_);
    return view(offset, tokens, view_.lane_model.hidden_size, view_.lane_model.hidden_size);
}

TensorView ActivationSlot::loss_gradient(std::int64_t tokens) const {
    return view(layer_offset(kept_layers_), tokens, view_.lane_model.hidden_size,
                view_.lane_model.hidden_size);
}

ExpertRoutes ActivationSlot::routes(char* start, std::int64_t tokens) const {
    const ExpertSpec& experts = *view_.lane_model.experts();
    const RoutesLayout layout = routes_layout(view_, experts);
    const auto floats = [&](std::uint64_t offset) {
        return reinterpret_cast<float*>(start + offset);
    };
    const auto numbers = [&](std::uint64_t offset) {
        return reinterpret_cast<std::int32_t*>(start + offset);
    };
    ExpertRoutes routes{tokens,
                        experts.count,
                        experts.per_token,
                        floats(layout.probabilities),
                        floats(layout.weights),
                        numbers(layout.chosen),
                        numbers(layout.places),
                        numbers(layout.rows),
                        numbers(layout.offsets)};
    if (!joins_experts(view_, experts)) return routes;
    routes.tiles = numbers(layout.tiles);
    routes.counters = numbers(layout.counters);
    routes.entries = numbers(layout.entries);
    return routes;
}

LayerActivations ActivationSlot::layer(std::int32_t local) const {
    const ModelSpec& model = view_.lane_model;
    const LayerRows& rows = tables_.in_layer(local);
    const std::int64_t tokens = rows.tokens;
    const LayerKeeping& keeping = keeping_[static_cast<std::size_t>(local)];
    char* start = start_of(keeping);
    const auto part = [&](std::uint64_t offset, std::int64_t columns, std::int64_t ld) {
        return TensorView{start + offset, dtype_, tokens, columns, ld};
    };
    const AttentionSpec& attention = model.attention();
    const LinearGroupShape qkv = group_shape(model, LinearGroup::qkv);
    const std::int64_t qk = attention.q_size() + attention.kv_size();
    const std::int64_t r = view_.replica.saved_columns;
    LayerActivations saved;
    saved.x = boundary(local, tables_.tokens()).row_range(rows.first_row, tokens);
    saved.qkv = part(layout_.qkv, qkv.out, qkv.out);
    if (attention.qk_norm) saved.qk_raw = part(layout_.qk_raw, qk, qk);
    saved.o = part(layout_.o, attention.q_size(), attention.q_size() + r);
    saved.lse = reinterpret_cast<float*>(start + layout_.lse);
    saved.x2 = part(layout_.x2, model.hidden_size, model.hidden_size);
    if (model.norms().has_after()) {
        saved.attention_made = part(layout_.attention_made, model.hidden_size, model.hidden_size);
        saved.mlp_made = part(layout_.mlp_made, model.hidden_size, model.hidden_size);
    }
    const LinearGroupShape gate_up = group_shape(model, LinearGroup::gate_up);
    const std::int64_t of_qkv = qkv.count * r;
    const std::int64_t of_gate_up = gate_up.count * r;
    saved.gate_up = part(layout_.gate_up, gate_up.out, gate_up.out);
    if (const ExpertSpec* experts = model.experts()) {
        saved.gate_up =
            matrix(start + layout_.gate_up, dtype_, tokens * experts->per_token, 2 * experts->size);
        saved.routes = routes(start + layout_.routes, tokens);
    }
    saved.s_qkv = part(layout_.s_qkv, of_qkv, of_qkv);
    saved.s_gate_up = part(layout_.s_gate_up, of_gate_up, of_gate_up);
    saved.s_down = part(layout_.s_down, r, r);
    return saved;
}

}  // namespace loratrain
