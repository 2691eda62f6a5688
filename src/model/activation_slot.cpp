#include "model/activation_slot.h"

namespace loratrain {

ActivationSlot::ActivationSlot(const Plan& plan, const StagePlan& stage, Backend& backend)
    : plan_(plan),
      dtype_(backend.compute_dtype()),
      layer_count_(stage.layer_count),
      layout_(layer_slot_layout(plan)),
      memory_(backend.allocate(slot_bytes(plan, stage), "activation slot")),
      tables_(plan, backend, memory_.data()) {}

TensorView ActivationSlot::view(std::uint64_t offset, std::int64_t tokens, std::int64_t columns,
                                std::int64_t ld) const {
    return {memory_.as<char>() + offset, dtype_, tokens, columns, ld};
}

TensorView ActivationSlot::boundary(std::int32_t i, std::int64_t tokens) const {
    const std::uint64_t offset =
        table_bytes(plan_) + static_cast<std::uint64_t>(i) * boundary_bytes(plan_);
    return view(offset, tokens, plan_.model.hidden_size, plan_.model.hidden_size);
}

TensorView ActivationSlot::loss_gradient(std::int64_t tokens) const {
    const auto layers = static_cast<std::uint64_t>(layer_count_);
    const std::uint64_t offset =
        table_bytes(plan_) + (layers + 1) * boundary_bytes(plan_) + layers * layout_.bytes;
    return view(offset, tokens, plan_.model.hidden_size, plan_.model.hidden_size);
}

LayerActivations ActivationSlot::layer(std::int32_t local, std::int64_t tokens) const {
    const ModelSpec& model = plan_.model;
    const std::uint64_t start =
        table_bytes(plan_) + static_cast<std::uint64_t>(layer_count_ + 1) * boundary_bytes(plan_) +
        static_cast<std::uint64_t>(local) * layout_.bytes;
    const std::int64_t qkv = model.q_size() + 2 * model.kv_size();
    const std::int64_t qk = model.q_size() + model.kv_size();
    const std::int64_t r = plan_.saved_columns;
    LayerActivations saved;
    saved.x = boundary(local, tokens);
    saved.qkv = view(start + layout_.qkv, tokens, qkv, qkv);
    if (model.qk_norm) saved.qk_raw = view(start + layout_.qk_raw, tokens, qk, qk);
    saved.o = view(start + layout_.o, tokens, model.q_size(), model.q_size() + r);
    saved.lse = static_cast<float*>(view(start + layout_.lse, tokens, 0, 0).data);
    saved.x2 = view(start + layout_.x2, tokens, model.hidden_size, model.hidden_size);
    const std::int64_t gate_up = 2 * model.intermediate_size;
    saved.gate_up = view(start + layout_.gate_up, tokens, gate_up, gate_up);
    saved.s_qkv = view(start + layout_.s_qkv, tokens, 3 * r, 3 * r);
    saved.s_gate_up = view(start + layout_.s_gate_up, tokens, 2 * r, 2 * r);
    saved.s_down = view(start + layout_.s_down, tokens, r, r);
    return saved;
}

}  // namespace loratrain
