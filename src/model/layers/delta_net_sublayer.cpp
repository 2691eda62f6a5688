#include "model/layers/delta_net_sublayer.h"

#include <utility>

namespace loratrain {

DeltaNetSublayer::Parts DeltaNetSublayer::split(const LayerSite& at, const TensorView& made) {
    const DeltaNetSpec& net = at.delta_net();
    const std::int64_t z = net.conv_size();
    const std::int64_t b = z + net.value_size();
    return {made.col_range(0, z), made.col_range(z, net.value_size()),
            made.col_range(b, net.value_heads),
            made.col_range(b + net.value_heads, net.value_heads)};
}

Scratch DeltaNetSublayer::lease(ScratchMatrix DeltaNetScratch::*of, std::int64_t rows,
                                std::int64_t columns) const {
    return tools_.workspace.lease(tools_.workspace.kinds().delta_net.*of, rows, 0, columns);
}

void DeltaNetSublayer::reorder(const LayerSite& at, const TensorView& outputs,
                               const TensorView& parts, bool back) const {
    const DeltaNetSpec& net = at.delta_net();
    const std::int64_t group = net.value_heads / net.key_heads;
    const std::int64_t values = group * net.value_dim;
    const std::int64_t qkvz = 2 * net.key_dim + 2 * values;
    const auto move = [&](std::int64_t first, std::int64_t stride, std::int64_t width,
                          std::int64_t to) {
        const std::int64_t heads = net.key_heads;
        const TensorView apart = outputs.col_range(first, (heads - 1) * stride + width);
        const TensorView close = parts.col_range(to, heads * width);
        tools_.backend.copy_heads(back ? CopyHeads{apart, close, heads, width, stride, width}
                                       : CopyHeads{close, apart, heads, width, width, stride});
    };
    const std::int64_t ba = net.key_heads * qkvz;
    move(0, qkvz, net.key_dim, 0);
    move(net.key_dim, qkvz, net.key_dim, net.key_size());
    move(2 * net.key_dim, qkvz, values, 2 * net.key_size());
    move(2 * net.key_dim + values, qkvz, values, net.conv_size());
    move(ba, 2 * group, group, ba);
    move(ba + group, 2 * group, group, ba + net.value_heads);
}

void DeltaNetSublayer::project(const LayerSite& at, const Branch& branch) const {
    const DeltaNetActivations& saved = at.saved.delta_net;
    const GroupSite in = at.group(LinearGroup::delta_in);
    if (at.delta_net().are_by_kind()) {
        return branch.project(in, tools_.outputs_of(in, saved.made), saved.s_in);
    }
    const Scratch outputs = lease(&DeltaNetScratch::ordered, saved.made.rows, saved.made.cols);
    branch.project(in, tools_.outputs_of(in, outputs), saved.s_in);
    reorder(at, outputs, saved.made, false);
}

CausalConv DeltaNetSublayer::conv_op(const LayerSite& at, const TensorView& mixed) const {
    return {split(at, at.saved.delta_net.made).mixed,
            at.weights.tensor(LayerTensor::delta_conv).data(), at.delta_net().conv_width, mixed,
            at.rows.packed};
}

DeltaGates DeltaNetSublayer::gates_op(const LayerSite& at, const TensorView& gates) const {
    const Parts made = split(at, at.saved.delta_net.made);
    const std::int64_t t = at.rows.tokens;
    return {made.a,
            made.b,
            at.weights.tensor(LayerTensor::delta_a_log).as<float>(),
            at.weights.tensor(LayerTensor::delta_dt_bias).as<float>(),
            gates.row_range(0, t),
            gates.row_range(t, t)};
}

DeltaRule DeltaNetSublayer::rule_op(const LayerSite& at, const TensorView& mixed,
                                    const TensorView& gates, const TensorView& states) const {
    const DeltaNetSpec& net = at.delta_net();
    const std::int64_t keys = net.key_size();
    const std::int64_t t = at.rows.tokens;
    return {mixed.col_range(0, keys),
            mixed.col_range(keys, keys),
            mixed.col_range(2 * keys, net.value_size()),
            gates.row_range(0, t),
            gates.row_range(t, t),
            at.saved.delta_net.o,
            net.key_heads,
            net.value_heads,
            states.f32(),
            at.rows.packed};
}

GatedNorm DeltaNetSublayer::norm_op(const LayerSite& at, const TensorView& product) const {
    return {at.saved.delta_net.o,
            split(at, at.saved.delta_net.made).z,
            at.weights.tensor(LayerTensor::delta_norm).data(),
            static_cast<float>(tools_.model().rms_norm_eps),
            at.delta_net().value_heads,
            product};
}

Scratch DeltaNetSublayer::product_of(const LayerSite& at) const {
    return tools_.workspace.input(at.rows.tokens, at.delta_net().value_size(),
                                  tools_.view.replica.saved_columns);
}

void DeltaNetSublayer::mix(const LayerSite& at) const {
    const DeltaNetSpec& net = at.delta_net();
    const std::int64_t t = at.rows.tokens;
    const Scratch mixed = lease(&DeltaNetScratch::mixed, t, net.conv_size());
    const Scratch gates = lease(&DeltaNetScratch::gates, 4 * t, net.value_heads);
    tools_.backend.delta_gates(gates_op(at, gates));
    if (at.texts != nullptr) {
        at.texts->convolve(at.layer, conv_op(at, mixed), at.rows.first_sample);
        return at.texts->run_rule(at.layer, rule_op(at, mixed, gates, {}), at.rows.first_sample);
    }
    const Scratch states = lease(&DeltaNetScratch::states, delta_states(t), net.state_size());
    tools_.backend.causal_conv(conv_op(at, mixed));
    tools_.backend.delta_rule(rule_op(at, mixed, gates, states));
}

void DeltaNetSublayer::forward(const LayerSite& at, const Branch& branch) {
    project(at, branch);
    mix(at);
    const Scratch product = product_of(at);
    tools_.backend.gated_norm(norm_op(at, product));
    branch.add(at.group(LinearGroup::delta_out),
               {{product}, {at.saved.delta_net.s_out.col_range(0, at.rows.width)}});
}

Scratch DeltaNetSublayer::gradient_of_outputs(const LayerSite& at) const {
    const TensorView& made = at.saved.delta_net.made;
    return tools_.workspace.gradient(
        made.rows, made.cols,
        at.group(LinearGroup::delta_in).count() * tools_.view.replica.saved_columns);
}

Scratch DeltaNetSublayer::out_backward(const LayerSite& at, const Branch& branch) const {
    LoraLinear& linear = tools_.linear;
    const TensorView& made = at.saved.delta_net.made;
    const GroupSite out = at.group(LinearGroup::delta_out);
    const PerLinear s = tools_.columns_of(out, at.saved.delta_net.s_out);
    const Scratch d_sum = branch.gradient_of_made();
    linear.backward_b(out, d_sum, s);
    Scratch d_product = tools_.workspace.inner(at.rows.tokens, at.delta_net().value_size());
    linear.backward_x(out, {d_sum}, d_product);
    Scratch d_made = at.delta_net().are_by_kind()
                         ? gradient_of_outputs(at)
                         : lease(&DeltaNetScratch::ordered, made.rows, made.cols);
    const Scratch product = product_of(at);
    const GatedNorm norm = norm_op(at, product);
    tools_.backend.gated_norm_backward({norm, d_product, norm.o, split(at, d_made).z});
    d_product.end();
    linear.backward_a(out, product, d_sum);
    const Scratch spare = tools_.workspace.inner(product->rows, d_sum->cols);
    linear.add_form_gradients(out, 0, {product, d_sum, product, branch.kept_output(out), spare},
                              s[0]);
    return d_made;
}

void DeltaNetSublayer::rule_backward(const LayerSite& at, const TensorView& d_made) const {
    const DeltaNetSpec& net = at.delta_net();
    const std::int64_t t = at.rows.tokens;
    const std::int64_t keys = net.key_size();
    const Parts grads = split(at, d_made);
    const Scratch mixed = lease(&DeltaNetScratch::mixed, t, net.conv_size());
    const Scratch d_mixed = lease(&DeltaNetScratch::d_mixed, t, net.conv_size());
    const Scratch gates = lease(&DeltaNetScratch::gates, 4 * t, net.value_heads);
    const Scratch states = lease(&DeltaNetScratch::states, delta_states(t), net.state_size());
    const TensorView d_g = gates->row_range(2 * t, t);
    const TensorView d_beta = gates->row_range(3 * t, t);
    const CausalConv conv = conv_op(at, mixed);
    const DeltaGates of_gates = gates_op(at, gates);
    tools_.backend.causal_conv(conv);
    tools_.backend.delta_gates(of_gates);
    const DeltaRule rule = rule_op(at, mixed, gates, states);
    tools_.backend.delta_rule_backward(
        {rule, rule.o, d_mixed->col_range(0, keys), d_mixed->col_range(keys, keys),
         d_mixed->col_range(2 * keys, net.value_size()), d_g, d_beta});
    tools_.backend.delta_gates_backward({of_gates, d_g, d_beta, grads.a, grads.b});
    tools_.backend.causal_conv_backward({conv, d_mixed, grads.mixed});
}

void DeltaNetSublayer::backward(const LayerSite& at, const Branch& branch, bool need_dx) {
    const DeltaNetActivations& saved = at.saved.delta_net;
    const bool by_kind = at.delta_net().are_by_kind();
    Scratch d_outputs = out_backward(at, branch);
    rule_backward(at, d_outputs);
    if (!by_kind) {
        const Scratch d_made = std::move(d_outputs);
        d_outputs = gradient_of_outputs(at);
        reorder(at, d_outputs, d_made, true);
    }
    const GroupSite in = at.group(LinearGroup::delta_in);
    tools_.linear.backward_b(in, d_outputs, tools_.columns_of(in, saved.s_in));
    const PerLinear y = tools_.outputs_of(in, saved.made);
    const auto output_of = [&](int i, const TensorView&) {
        return by_kind ? y[static_cast<std::size_t>(i)] : TensorView{};
    };
    branch.project_backward(in, {d_outputs}, saved.s_in, output_of, need_dx);
}

}  // namespace loratrain
