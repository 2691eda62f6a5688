#include "model/workspace.h"

namespace loratrain {

Workspace::Workspace(const ReplicaView& view, const StagePlan& stage, Backend& backend)
    : view_(view),
      backend_(backend),
      dtype_(backend.compute_dtype()),
      leased_(scratch_is_checked ? std::make_unique<LeasedBytes>() : nullptr) {
    const WorkspaceLayout layout = workspace_layout(view, stage);
    const auto part = [&](std::uint64_t bytes, const char* name) -> Part {
        return {backend.allocate(bytes, name), name};
    };
    input_ = part(layout.input, "linear input scratch");
    gradient_ = part(layout.gradient, "linear gradient scratch");
    residual_ = part(layout.residual, "residual gradient");
    inner_ = part(layout.inner, "inner gradient scratch");
    branch_ = part(layout.branch, "gradient before a norm");
    layer_ = backend.allocate(layout.layer, "activations of one layer");
    offload_ = backend.allocate(layout.offload, "activations on their way to and from the host");
    router_ = part(layout.router, "logits of a router");
    expert_rows_ = part(layout.expert_rows, "rows of experts");
    expert_product_ = part(layout.expert_product, "products of experts");
    expert_inner_ = part(layout.expert_inner, "inner gradients of experts");
    expert_gradient_ = part(layout.expert_gradient, "gradients of experts");
    expert_weights_ = part(layout.expert_weights, "gradients of a router's weights");
    expert_input_ = part(layout.expert_input, "inputs of experts");
    expert_s_ = part(layout.expert_s, "LoRA columns of experts");
    expert_ds_ = part(layout.expert_ds, "LoRA gradients of experts");
    staged_ = part(layout.staged, "widened weights");
    codes_ = backend.allocate(layout.codes, "codes of activations");
    code_scales_ = backend.allocate(layout.code_scales, "scales of activations");
    logits_ = backend.allocate(layout.logits, "logits chunk");
    head_rows_ = backend.allocate(layout.head_rows, "head rows");
    statistics_ = backend.allocate(layout.statistics, "statistics of logits");
}

Scratch Workspace::lease(const Part& part, std::int64_t rows, std::int64_t columns,
                         std::int64_t pad) const {
    return {{part.buffer.data(), dtype_, rows, columns, columns + pad}, part.name, leased_.get()};
}

Scratch Workspace::input(std::int64_t tokens, std::int64_t columns, std::int64_t pad) const {
    return lease(input_, tokens, columns, pad);
}

Scratch Workspace::gradient(std::int64_t tokens, std::int64_t columns, std::int64_t pad) const {
    return lease(gradient_, tokens, columns, pad);
}

Scratch Workspace::inner(std::int64_t tokens, std::int64_t columns) const {
    return lease(inner_, tokens, columns);
}

Scratch Workspace::branch(std::int64_t tokens) const {
    return lease(branch_, tokens, view_.lane_model.hidden_size, view_.replica.saved_columns);
}

Scratch Workspace::residual(std::int64_t tokens) const {
    return lease(residual_, tokens, view_.lane_model.hidden_size, view_.replica.saved_columns);
}

Scratch Workspace::matrix_of(const WeightView& weights, const MatrixShape& shape) const {
    const TensorView m = gemm_matrix(weights, shape, staged_.buffer.data(), backend_);
    if (weights.residence == WeightResidence::resident) return Scratch(m);
    return {m, staged_.name, leased_.get()};
}

Scratch Workspace::staged() const {
    return lease(staged_, 1, static_cast<std::int64_t>(staged_.buffer.bytes() / size_of(dtype_)));
}

void* Workspace::offload(std::int32_t buffer) const {
    return offload_.as<char>() +
           static_cast<std::uint64_t>(buffer) * layer_slot_layout(view_).bytes;
}

Scratch Workspace::router(std::int64_t tokens) const {
    return lease(router_, tokens, view_.lane_model.experts()->count);
}

Scratch Workspace::expert_rows(std::int64_t rows) const {
    return lease(expert_rows_, rows, view_.lane_model.hidden_size);
}

Scratch Workspace::expert_product(std::int64_t rows) const {
    return lease(expert_product_, rows, view_.lane_model.experts()->size);
}

Scratch Workspace::expert_inner(std::int64_t rows) const {
    return lease(expert_inner_, rows, view_.lane_model.experts()->size);
}

Scratch Workspace::expert_gradient(std::int64_t rows) const {
    return lease(expert_gradient_, rows, 2 * view_.lane_model.experts()->size);
}

Scratch Workspace::expert_weights(std::int64_t rows) const {
    return {matrix(expert_weights_.buffer.data(), DType::f32, 1, rows), expert_weights_.name,
            leased_.get()};
}

Scratch Workspace::expert_input(std::int64_t rows) const {
    return lease(expert_input_, rows, view_.lane_model.hidden_size);
}

Scratch Workspace::lease_columns(const Part& part, std::int64_t rows, int linear) const {
    const std::int64_t columns = view_.replica.saved_columns;
    const TensorView both = matrix(part.buffer.data(), dtype_, rows, 2 * columns);
    return {both.col_range(linear * columns, columns), part.name, leased_.get()};
}

Scratch Workspace::expert_s(std::int64_t rows, int linear) const {
    return lease_columns(expert_s_, rows, linear);
}

Scratch Workspace::expert_ds(std::int64_t rows, int linear) const {
    return lease_columns(expert_ds_, rows, linear);
}

TensorView Workspace::head_rows(int part, std::int64_t rows) const {
    const std::size_t part_bytes = head_rows_.bytes() / 3;
    return matrix(head_rows_.as<char>() + static_cast<std::size_t>(part) * part_bytes, dtype_, rows,
                  view_.lane_model.hidden_size);
}

}  // namespace loratrain
