#include "model/workspace.h"

namespace loratrain {

Workspace::Workspace(const ReplicaView& view, const StagePlan& stage, Backend& backend)
    : view_(view), dtype_(backend.compute_dtype()) {
    const WorkspaceLayout layout = workspace_layout(view, stage);
    input_ = backend.allocate(layout.input, "linear input scratch");
    gradient_ = backend.allocate(layout.gradient, "linear gradient scratch");
    residual_ = backend.allocate(layout.residual, "residual gradient");
    inner_ = backend.allocate(layout.inner, "inner gradient scratch");
    branch_ = backend.allocate(layout.branch, "gradient before a norm");
    layer_ = backend.allocate(layout.layer, "activations of one layer");
    offload_ = backend.allocate(layout.offload, "activations on their way to and from the host");
    router_ = backend.allocate(layout.router, "logits of a router");
    expert_rows_ = backend.allocate(layout.expert_rows, "rows of experts");
    expert_product_ = backend.allocate(layout.expert_product, "products of experts");
    expert_inner_ = backend.allocate(layout.expert_inner, "inner gradients of experts");
    expert_gradient_ = backend.allocate(layout.expert_gradient, "gradients of experts");
    expert_weights_ = backend.allocate(layout.expert_weights, "gradients of a router's weights");
    expert_input_ = backend.allocate(layout.expert_input, "inputs of experts");
    expert_s_ = backend.allocate(layout.expert_s, "LoRA columns of experts");
    expert_ds_ = backend.allocate(layout.expert_ds, "LoRA gradients of experts");
    staged_ = backend.allocate(layout.staged, "widened weights");
    codes_ = backend.allocate(layout.codes, "codes of activations");
    code_scales_ = backend.allocate(layout.code_scales, "scales of activations");
    logits_ = backend.allocate(layout.logits, "logits chunk");
    head_rows_ = backend.allocate(layout.head_rows, "head rows");
    statistics_ = backend.allocate(layout.statistics, "statistics of logits");
}

TensorView Workspace::input(std::int64_t tokens, std::int64_t columns, std::int64_t ld) const {
    return {input_.data(), dtype_, tokens, columns, ld};
}

void* Workspace::offload(std::int32_t buffer) const {
    return offload_.as<char>() +
           static_cast<std::uint64_t>(buffer) * layer_slot_layout(view_).bytes;
}

TensorView Workspace::gradient(std::int64_t tokens, std::int64_t columns, std::int64_t ld) const {
    return {gradient_.data(), dtype_, tokens, columns, ld};
}

TensorView Workspace::inner(std::int64_t tokens, std::int64_t columns) const {
    return matrix(inner_.data(), dtype_, tokens, columns);
}

TensorView Workspace::branch(std::int64_t tokens) const {
    const std::int64_t hidden = view_.lane_model.hidden_size;
    return {branch_.data(), dtype_, tokens, hidden, hidden + view_.replica.saved_columns};
}

TensorView Workspace::residual(std::int64_t first, std::int64_t tokens) const {
    const std::int64_t hidden = view_.lane_model.hidden_size;
    const TensorView all{residual_.data(), dtype_, first + tokens, hidden,
                         hidden + view_.replica.saved_columns};
    return all.row_range(first, tokens);
}

TensorView Workspace::router(std::int64_t tokens) const {
    return matrix(router_.data(), dtype_, tokens, view_.lane_model.experts()->count);
}

TensorView Workspace::expert_rows(std::int64_t rows) const {
    return matrix(expert_rows_.data(), dtype_, rows, view_.lane_model.hidden_size);
}

TensorView Workspace::expert_product(std::int64_t rows) const {
    return matrix(expert_product_.data(), dtype_, rows, view_.lane_model.experts()->size);
}

TensorView Workspace::expert_inner(std::int64_t rows) const {
    return matrix(expert_inner_.data(), dtype_, rows, view_.lane_model.experts()->size);
}

TensorView Workspace::expert_gradient(std::int64_t rows) const {
    return matrix(expert_gradient_.data(), dtype_, rows, 2 * view_.lane_model.experts()->size);
}

TensorView Workspace::expert_input(std::int64_t rows) const {
    return matrix(expert_input_.data(), dtype_, rows, view_.lane_model.hidden_size);
}

TensorView Workspace::expert_columns(const Buffer& buffer, std::int64_t rows, int linear) const {
    const std::int64_t columns = view_.replica.saved_columns;
    return matrix(buffer.data(), dtype_, rows, 2 * columns).col_range(linear * columns, columns);
}

TensorView Workspace::expert_s(std::int64_t rows, int linear) const {
    return expert_columns(expert_s_, rows, linear);
}

TensorView Workspace::expert_ds(std::int64_t rows, int linear) const {
    return expert_columns(expert_ds_, rows, linear);
}

TensorView Workspace::head_rows(int part, std::int64_t rows) const {
    const std::size_t part_bytes = head_rows_.bytes() / 3;
    return matrix(head_rows_.as<char>() + static_cast<std::size_t>(part) * part_bytes, dtype_, rows,
                  view_.lane_model.hidden_size);
}

}  // namespace loratrain
