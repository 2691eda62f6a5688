#include "model/activation_slot.h"

namespace loratrain {

ActivationSlot::ActivationSlot(const ReplicaView& view, const StagePlan& stage,
                               const Workspace& workspace, Backend& backend)
    : view_(view),
      dtype_(backend.compute_dtype()),
      first_layer_(stage.first_layer),
      layer_count_(stage.layer_count),
      kept_layers_(kept_layers(view, stage)),
      offloaded_layers_(offloaded_layers(view, stage)),
      offload_buffers_(offload_buffers(view, stage)),
      keeping_(layer_keeping(view, stage)),
      workspace_(workspace),
      memory_(backend.allocate(slot_bytes(view, stage), "activation slot")),
      tables_(view, stage, backend, memory_.data()) {}

TensorView ActivationSlot::view(std::uint64_t offset, std::int64_t tokens, std::int64_t columns,
                                std::int64_t ld) const {
    return {memory_.as<char>() + offset, dtype_, tokens, columns, ld};
}

std::uint64_t ActivationSlot::layer_offset(std::int32_t kept) const {
    return table_bytes(view_) +
           static_cast<std::uint64_t>(layer_count_ + 1) * boundary_bytes(view_) +
           static_cast<std::uint64_t>(kept) * layer_slot_bytes(view_);
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

LayerActivations ActivationSlot::layer(std::int32_t local) const {
    const LayerRows& rows = tables_.in_layer(local);
    LayerActivations saved;
    saved.x = boundary(local, tables_.tokens()).row_range(rows.first_row, rows.tokens);
    saved_arrays(view_, view_.lane_model.layer(first_layer_ + local), saved)
        .place(start_of(keeping_[static_cast<std::size_t>(local)]), rows.tokens);
    return saved;
}

}  // namespace loratrain
