#include "model/layers/branch.h"

namespace loratrain {

PerLinear LayerTools::outputs_of(const GroupSite& at, const TensorView& y) const {
    PerLinear parts;
    const LinearGroupShape& group = at.weights.shape;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(group.count); ++i) {
        const std::int64_t out = linear_shape(model(), group.linears[i]).out;
        parts[i] = y.col_range(first, out);
        first += out;
    }
    return parts;
}

PerLinear LayerTools::columns_of(const GroupSite& at, const TensorView& s) const {
    PerLinear parts;
    for (int i = 0; i < at.weights.shape.count; ++i) {
        parts[static_cast<std::size_t>(i)] =
            s.col_range(i * view.replica.saved_columns, at.rows.width);
    }
    return parts;
}

Scratch Branch::make_input(std::int64_t blocks) const {
    Scratch h =
        tools_.workspace.input(x().rows, x().cols, blocks * tools_.view.replica.saved_columns);
    make_input(h, {});
    return h;
}

Operand Branch::make_input(const TensorView& y, const RowCodes& codes) const {
    if (!tools_.model().norms().has_before()) {
        tools_.backend.copy({y, x()});
        return {y};
    }
    const auto eps = static_cast<float>(tools_.model().stream_eps());
    tools_.backend.rms_norm(
        {x(), stream_.norm_before.data(), eps, 1, y, codes, tools_.norm_offset()});
    return {y, codes};
}

void Branch::norm_backward(const TensorView& dh, bool accumulate, const TensorView& scaled) const {
    const auto eps = static_cast<float>(tools_.model().stream_eps());
    tools_.backend.rms_norm_backward({x(), stream_.norm_before.data(), eps, 1, dh, gradient(),
                                      accumulate, scaled, tools_.norm_offset()});
}

void Branch::project(const GroupSite& at, const PerLinear& y, const TensorView& s) const {
    const Scratch h = tools_.workspace.input(
        x().rows, x().cols,
        column_blocks(tools_.view, at.group) * tools_.view.replica.saved_columns);
    const Operand made = make_input(h, tools_.linear.coding_of_input(h->rows, h->cols));
    tools_.linear.forward(at, {made, tools_.columns_of(at, s)}, y, {});
}

void Branch::add(const GroupSite& at, const GroupInput& of) const {
    const ModelSpec& model = tools_.model();
    const bool normed = model.norms().has_after();
    if (!normed && !has_sum()) {
        if (stream_.made.data == nullptr || !tools_.linear.needs_input(at)) {
            return tools_.linear.shrink(at, of);
        }
        return tools_.linear.forward(at, of, {stream_.made, {}, {}}, {});
    }
    const TensorView& made = normed ? stream_.made : stream_.sum;
    const bool adds = !normed && tools_.lanes.is_first();
    tools_.linear.forward(at, of, {made, {}, {}}, adds ? stream_.x : TensorView{},
                          normed ? TensorView{} : stream_.made);
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

TensorView Branch::kept_output(const GroupSite& at) const {
    // Norms after need the sum over lanes; the product is a lane's part of it.
    const bool is_sum = tools_.model().norms().has_after() && tools_.lanes.count() > 1;
    if (is_sum || LoraLinear::has_bias_of(at, 0)) return {};
    return stream_.made;
}

Scratch Branch::gradient_of_made() const {
    if (!tools_.model().norms().has_after()) return Scratch(gradient());
    Scratch d_made = tools_.workspace.branch(x().rows);
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

void Branch::project_backward(const GroupSite& at, const Operand& of, const TensorView& s,
                              const OutputOf& output_of, bool need_dx) const {
    LoraLinear& linear = tools_.linear;
    const TensorView& dy = of.view;
    if (linear.needs_input(at)) {
        const PerLinear columns = tools_.columns_of(at, s);
        Scratch h = make_input();
        for (std::size_t i = 0; i < static_cast<std::size_t>(at.count()); ++i) {
            const std::int64_t out = linear_shape(tools_.model(), at.weights.shape.linears[i]).out;
            const Scratch spare = tools_.workspace.inner(h->rows, out);
            const int number = static_cast<int>(i);
            const bool lost = linear.add_form_gradients(
                at, number, {h, dy, h, output_of(number, spare), spare}, columns[i]);
            if (!lost) continue;
            h.end();
            h = make_input();
        }
    }
    const Scratch dh = need_dx ? tools_.workspace.inner(x().rows, x().cols) : Scratch(gradient());
    if (need_dx) {
        linear.backward_x(at, of, dh);
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

TensorView Branch::begin_sum() const {
    if (tools_.lanes.is_first()) return x();
    tools_.backend.zero(sum().data,
                        static_cast<std::size_t>(sum().rows * sum().ld) * sum().element_size());
    return sum();
}

void Branch::sum_over_lanes() const {
    if (has_sum()) tools_.lanes.all->all_reduce(sum());
}

void Branch::input_backward(const TensorView& dh) const {
    tools_.lanes.all->all_reduce(dh);
    norm_backward(dh, true, {});
}

}  // namespace loratrain
