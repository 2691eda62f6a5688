#include "model/layers/dense_sublayer.h"

namespace loratrain {

TensorView DenseSublayer::product_of(const LayerSite& at) const {
    const std::int64_t f = at.dense().size;
    return tools_.workspace.input(at.rows.tokens, f, f + tools_.view.replica.saved_columns);
}

SwiGlu DenseSublayer::swiglu_op(const LayerSite& at, const Operand& product) {
    const TensorView& made = at.saved.gate_up;
    const std::int64_t f = product.view.cols;
    return {made.col_range(0, f), made.col_range(f, f), product.view, product.codes,
            at.dense().activation};
}

SwiGluBackward DenseSublayer::swiglu_backward_op(const LayerSite& at, const TensorView& d_product,
                                                 const TensorView& d_made,
                                                 const TensorView& product, const RowCodes& codes) {
    const TensorView& made = at.saved.gate_up;
    const std::int64_t f = product.cols;
    return {made.col_range(0, f),
            made.col_range(f, f),
            d_product,
            d_made.col_range(0, f),
            d_made.col_range(f, f),
            product,
            codes,
            at.dense().activation};
}

void DenseSublayer::activate(const LayerSite& at, const Operand& product) const {
    const TensorView& made = at.saved.gate_up;
    if (at.dense().has_gate()) return tools_.backend.swiglu(swiglu_op(at, product));
    tools_.backend.xielu(
        {made, at.weights.xielu_positive, at.weights.xielu_negative, product.view, product.codes});
}

void DenseSublayer::activate_backward(const LayerSite& at, const TensorView& d_product,
                                      const TensorView& d_made, const TensorView& product,
                                      const RowCodes& codes) const {
    const TensorView& made = at.saved.gate_up;
    if (!at.dense().has_gate()) {
        return tools_.backend.xielu_backward({made, at.weights.xielu_positive,
                                              at.weights.xielu_negative, d_product, d_made, product,
                                              codes});
    }
    tools_.backend.swiglu_backward(swiglu_backward_op(at, d_product, d_made, product, codes));
}

void DenseSublayer::forward(const LayerSite& at, const Branch& branch) {
    const GroupSite gate_up = at.group(LinearGroup::gate_up);
    branch.project(gate_up, tools_.outputs_of(gate_up, at.saved.gate_up), at.saved.s_gate_up);
    const GroupSite down = at.group(LinearGroup::down);
    const TensorView h = product_of(at);
    GroupInput product{{h, tools_.linear.coding_of_input(h.rows, h.cols)},
                       {at.saved.s_down.col_range(0, at.rows.width), {}, {}}};
    if (!at.dense().has_gate() ||
        !tools_.linear.shrink_gated(down, swiglu_op(at, product.x), product)) {
        activate(at, product.x);
    }
    branch.add(down, product);
}

Operand DenseSublayer::down_backward(const LayerSite& at, const Branch& branch) const {
    LoraLinear& linear = tools_.linear;
    const LayerActivations& saved = at.saved;
    const GroupSite down = at.group(LinearGroup::down);
    const PerLinear s = tools_.columns_of(down, saved.s_down);
    const TensorView d_made = branch.gradient_of_made();
    linear.backward_b(down, d_made, s);

    const std::int64_t t = at.rows.tokens;
    const GroupSite gate_up = at.group(LinearGroup::gate_up);
    const LinearGroupShape& shape = gate_up.weights.shape;
    const TensorView d_product = tools_.workspace.inner(t, at.dense().size);
    const TensorView d_gate_up = tools_.workspace.gradient(
        t, shape.out, shape.out + shape.count * tools_.view.replica.saved_columns);
    const TensorView product = product_of(at);
    const RowCodes codes = linear.coding_of_gradient(gate_up, t);
    LoraLinear::Gated around{
        down, d_made, d_product, gate_up, tools_.columns_of(gate_up, saved.s_gate_up), {}};
    if (at.dense().has_gate()) {
        around.product = swiglu_backward_op(at, d_product, d_gate_up, product, codes);
    }
    if (linear.backward_gated(around)) return {d_gate_up};
    activate_backward(at, d_product, d_gate_up, product, codes);
    linear.backward_a(down, product, d_made);
    linear.add_form_gradients(down, 0, {product, d_made, product, {}}, s[0]);
    linear.backward_b(gate_up, d_gate_up, around.s);
    return {d_gate_up, codes};
}

void DenseSublayer::backward(const LayerSite& at, const Branch& branch, bool need_dx) {
    const Operand d_gate_up = down_backward(at, branch);
    const GroupSite gate_up = at.group(LinearGroup::gate_up);
    const PerLinear y = tools_.outputs_of(gate_up, at.saved.gate_up);
    const auto output_of = [&](int i) {
        return LoraLinear::has_bias_of(gate_up, i) ? TensorView{} : y[static_cast<std::size_t>(i)];
    };
    branch.project_backward(gate_up, d_gate_up, at.saved.s_gate_up, output_of, need_dx);
}

}  // namespace loratrain
