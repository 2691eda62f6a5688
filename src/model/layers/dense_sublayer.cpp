#include "model/layers/dense_sublayer.h"

#include <cmath>

namespace loratrain {

namespace {

float softplus(float x) {
    return x > 20.0F ? x : std::log1p(std::exp(x));
}

XieluShape xielu_shape(const LayerSite& at) {
    if (at.dense().activation == Activation::relu_squared) return relu_squared;
    constexpr float least = 0.5F;
    return {softplus(at.weights.number(LayerTensor::xielu_positive)),
            least + softplus(at.weights.number(LayerTensor::xielu_negative))};
}

}  // namespace

Scratch DenseSublayer::product_of(const LayerSite& at) const {
    return tools_.workspace.input(at.rows.tokens, at.dense().size,
                                  tools_.view.replica.saved_columns);
}

Scratch DenseSublayer::gradient_of_made(const GroupSite& gate_up) const {
    return tools_.workspace.gradient(gate_up.rows.tokens, gate_up.weights.shape.out,
                                     gate_up.count() * tools_.view.replica.saved_columns);
}

SwiGlu DenseSublayer::swiglu_op(const LayerSite& at, const Operand& product) {
    const TensorView& made = at.saved.dense.gate_up;
    const std::int64_t f = product.view.cols;
    return {made.col_range(0, f), made.col_range(f, f), product.view, product.codes,
            at.dense().activation};
}

SwiGluBackward DenseSublayer::swiglu_backward_op(const LayerSite& at, const TensorView& d_product,
                                                 const TensorView& d_made,
                                                 const TensorView& product, const RowCodes& codes) {
    const TensorView& made = at.saved.dense.gate_up;
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
    const TensorView& made = at.saved.dense.gate_up;
    if (at.dense().has_gate()) return tools_.backend.swiglu(swiglu_op(at, product));
    tools_.backend.xielu({made, xielu_shape(at), product.view, product.codes});
}

void DenseSublayer::activate_backward(const LayerSite& at, const TensorView& d_product,
                                      const TensorView& d_made, const TensorView& product,
                                      const RowCodes& codes) const {
    const TensorView& made = at.saved.dense.gate_up;
    if (!at.dense().has_gate()) {
        return tools_.backend.xielu_backward(
            {made, xielu_shape(at), d_product, d_made, product, codes});
    }
    tools_.backend.swiglu_backward(swiglu_backward_op(at, d_product, d_made, product, codes));
}

void DenseSublayer::forward(const LayerSite& at, const Branch& branch) {
    const GroupSite gate_up = at.group(LinearGroup::gate_up);
    branch.project(gate_up, tools_.outputs_of(gate_up, at.saved.dense.gate_up),
                   at.saved.dense.s_gate_up);
    const GroupSite down = at.group(LinearGroup::down);
    const Scratch h = product_of(at);
    GroupInput product{{h, tools_.linear.coding_of_input(h->rows, h->cols)},
                       {at.saved.dense.s_down.col_range(0, at.rows.width), {}, {}}};
    if (!at.dense().has_gate() ||
        !tools_.linear.shrink_gated(down, swiglu_op(at, product.x), product)) {
        activate(at, product.x);
    }
    branch.add(down, product);
}

Operand DenseSublayer::down_backward(const LayerSite& at, const Branch& branch,
                                     Scratch& d_gate_up) const {
    LoraLinear& linear = tools_.linear;
    const GroupSite down = at.group(LinearGroup::down);
    const GroupSite gate_up = at.group(LinearGroup::gate_up);
    const PerLinear s = tools_.columns_of(down, at.saved.dense.s_down);
    const Scratch d_down = branch.gradient_of_made();
    linear.backward_b(down, d_down, s);

    Scratch d_product = tools_.workspace.inner(at.rows.tokens, at.dense().size);
    const TensorView product = product_of(at).place();
    const TensorView d_made = gradient_of_made(gate_up).place();
    const RowCodes codes = linear.coding_of_gradient(gate_up, d_made.rows);
    LoraLinear::Gated around{down, d_down, gate_up,
                             tools_.columns_of(gate_up, at.saved.dense.s_gate_up)};
    if (at.dense().has_gate()) {
        around.product = swiglu_backward_op(at, d_product, d_made, product, codes);
    }
    const bool at_once = linear.backward_x_of_down(around, d_product);
    d_gate_up = gradient_of_made(gate_up);
    const Scratch h = product_of(at);
    if (at_once) {
        linear.backward_gated(around);
        return {d_gate_up};
    }
    activate_backward(at, d_product, d_gate_up, h, codes);
    d_product.end();
    linear.backward_a(down, h, d_down);
    {
        const Scratch spare = tools_.workspace.inner(h->rows, d_down->cols);
        linear.add_form_gradients(down, 0, {h, d_down, h, branch.kept_output(down), spare}, s[0]);
    }
    linear.backward_b(gate_up, d_gate_up, around.s);
    return {d_gate_up, codes};
}

void DenseSublayer::backward(const LayerSite& at, const Branch& branch, bool need_dx) {
    Scratch leased;
    const Operand d_gate_up = down_backward(at, branch, leased);
    const GroupSite gate_up = at.group(LinearGroup::gate_up);
    const PerLinear y = tools_.outputs_of(gate_up, at.saved.dense.gate_up);
    const auto output_of = [&](int i, const TensorView&) {
        return LoraLinear::has_bias_of(gate_up, i) ? TensorView{} : y[static_cast<std::size_t>(i)];
    };
    branch.project_backward(gate_up, d_gate_up, at.saved.dense.s_gate_up, output_of, need_dx);
}

}  // namespace loratrain
