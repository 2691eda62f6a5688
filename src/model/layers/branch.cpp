#include "model/layers/branch.h"

namespace loratrain {

std::array<TensorView, 3> LayerTools::outputs_of(const GroupSite& at, const TensorView& y) const {
    std::array<TensorView, 3> parts;
    const LinearGroupShape& group = at.weights.shape;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(group.count); ++i) {
        const std::int64_t out = linear_shape(model(), group.linears[i]).out;
        parts[i] = y.col_range(first, out);
        first += out;
    }
    return parts;
}

std::array<TensorView, 3> LayerTools::columns_of(const GroupSite& at, const TensorView& s) const {
    std::array<TensorView, 3> parts;
    for (int i = 0; i < at.weights.shape.count; ++i) {
        parts[static_cast<std::size_t>(i)] =
            s.col_range(i * view.replica.saved_columns, at.rows.width);
    }
    return parts;
}

TensorView Branch::make_input() const {
    const std::int64_t hidden = x().cols;
    const TensorView h =
        tools_.workspace.input(x().rows, hidden, hidden + tools_.view.replica.saved_columns);
    make_input(h, {});
    return h;
}

void Branch::make_input(const TensorView& y, const RowCodes& codes) const {
    if (!tools_.model().norms().has_before()) return tools_.backend.copy({y, x()});
    const auto eps = static_cast<float>(tools_.model().stream_eps());
    tools_.backend.rms_norm(
        {x(), stream_.norm_before.data(), eps, 1, y, codes, tools_.norm_offset()});
}

void Branch::norm_backward(const TensorView& dh, bool accumulate, const TensorView& scaled) const {
    const auto eps = static_cast<float>(tools_.model().stream_eps());
    tools_.backend.rms_norm_backward({x(), stream_.norm_before.data(), eps, 1, dh, gradient(),
                                      accumulate, scaled, tools_.norm_offset()});
}

void Branch::project(const GroupSite& at, const std::array<TensorView, 3>& y,
                     const TensorView& s) const {
    const std::int64_t t = x().rows;
    const std::int64_t hidden = x().cols;
    const std::int64_t behind =
        column_blocks(tools_.view, at.group) * tools_.view.replica.saved_columns;
    const TensorView h = tools_.workspace.input(t, hidden, hidden + behind);
    make_input(h, tools_.linear.coding_of_input(t, hidden));
    const bool coded = tools_.model().norms().has_before();
    tools_.linear.forward(at, h, y, tools_.columns_of(at, s), {},
                          coded ? LoraLinear::Codes::made : LoraLinear::Codes::to_make);
}

void Branch::add(const GroupSite& at, const TensorView& x, const TensorView& s,
                 LoraLinear::Codes codes, LoraLinear::Sums sums) const {
    const ModelSpec& model = tools_.model();
    const bool normed = model.norms().has_after();
    if (!normed && !has_sum()) {
        if (sums == LoraLinear::Sums::to_make) tools_.linear.shrink(at, x, {s, {}, {}});
        return;
    }
    const TensorView& made = normed ? stream_.made : stream_.sum;
    const bool adds = !normed && tools_.lanes.is_first();
    tools_.linear.forward(at, x, {made, {}, {}}, {s, {}, {}}, adds ? stream_.x : TensorView{},
                          codes, sums);
    tools_.lanes.all->all_reduce(made);
    if (!normed || !has_sum()) return;
    tools_.backend.rms_norm({made,
                             stream_.norm_after.data(),
                             static_cast<float>(model.rms_norm_eps),
                             1,
                             stream_.sum,
                             {},
                             tools_.norm_offset(),
                             stream_.x});
}

TensorView Branch::gradient() const {
    return tools_.workspace.residual(first_row_, x().rows);
}

TensorView Branch::gradient_of_made() const {
    if (!tools_.model().norms().has_after()) return gradient();
    const TensorView d_made = tools_.workspace.branch(x().rows);
    tools_.backend.rms_norm_backward({stream_.made,
                                      stream_.norm_after.data(),
                                      static_cast<float>(tools_.model().rms_norm_eps),
                                      1,
                                      gradient(),
                                      d_made,
                                      false,
                                      {},
                                      tools_.norm_offset()});
    return d_made;
}

void Branch::project_backward(const GroupSite& at, const TensorView& dy, const TensorView& s,
                              const OutputOf& output_of, LoraLinear::Codes codes,
                              bool need_dx) const {
    LoraLinear& linear = tools_.linear;
    if (linear.has_dora(at)) {
        TensorView h = make_input();
        for (int i = 0; i < at.weights.shape.count; ++i) {
            const bool lost =
                linear.backward_m(at, i, h, dy, tools_.columns_of(at, s), h, output_of(i));
            if (lost) h = make_input();
        }
    }
    TensorView dh = gradient();
    if (need_dx) {
        dh = tools_.workspace.inner(x().rows, x().cols);
        linear.backward_x(at, dy, dh, codes);
        tools_.lanes.all->all_reduce(dh);
    }
    if (!tools_.model().norms().has_before()) {
        if (need_dx) tools_.backend.add({gradient(), dh});
        return linear.backward_a(at, x(), dy);
    }
    const bool lora = linear.has_lora(at);
    if (!need_dx && !lora) return;
    norm_backward(dh, need_dx, lora ? LoraLinear::ds_of_group(at, dy) : TensorView{});
    linear.backward_a(at, x(), dy, stream_.norm_before.data(), tools_.norm_offset());
}

void Branch::input_backward(const TensorView& dh) const {
    norm_backward(dh, true, {});
}

}  // namespace loratrain
