#include "model/workspace.h"

#include <algorithm>

#include "base/error.h"

namespace loratrain {

void LeasedBytes::begin(const TensorView& view, const char* name) {
    if (view.numel() == 0) return;
    const auto* first = static_cast<const char*>(view.data);
    const auto* end = static_cast<const char*>(view.offset(view.rows - 1, view.cols));
    for (const Range& other : ranges_) {
        LORATRAIN_CHECK(end <= other.first || other.end <= first, name, " leased while ",
                        other.name, " is");
    }
    ranges_.push_back({first, end, name});
}

void LeasedBytes::end(const TensorView& view) {
    if (view.numel() == 0) return;
    const auto own = std::find_if(ranges_.begin(), ranges_.end(),
                                  [&](const Range& range) { return range.first == view.data; });
    if (own != ranges_.end()) ranges_.erase(own);
}

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
    for (ScratchMatrix* matrix : kind_scratch(view, kinds_)) {
        matrix->data =
            of_kinds_.emplace_back(backend.allocate(matrix->bytes(), matrix->name)).data();
    }
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
    return offload_.as<char>() + static_cast<std::uint64_t>(buffer) * layer_slot_bytes(view_);
}

Scratch Workspace::lease(const ScratchMatrix& of, std::int64_t rows, std::int64_t first,
                         std::int64_t columns) const {
    return {matrix(of.data, of.dtype, rows, of.columns).col_range(first, columns), of.name,
            leased_.get()};
}

TensorView Workspace::head_rows(int part, std::int64_t rows) const {
    const std::size_t part_bytes = head_rows_.bytes() / 3;
    return matrix(head_rows_.as<char>() + static_cast<std::size_t>(part) * part_bytes, dtype_, rows,
                  view_.lane_model.hidden_size);
}

}  // namespace loratrain
