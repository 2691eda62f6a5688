#include "model/layers/shared_expert.h"

#include "model/layers/expert_routes.h"

namespace loratrain {

Scratch SharedExpert::lease(ScratchMatrix ExpertScratch::*which, std::int64_t rows,
                            std::int64_t columns) const {
    return tools_.workspace.lease(tools_.workspace.kinds().experts.*which, rows, 0, columns);
}

ExpertRoutes SharedExpert::routes_of(const LayerSite& at) const {
    return routes_at(shared_routes_layout(tools_.view), at.saved.experts.shared_routes,
                     {at.rows.tokens, 1, 1});
}

TensorView SharedExpert::gate_of(const LayerSite& at) const {
    return matrix(at.weights.tensor(LayerTensor::shared_gate).data(),
                  tools_.backend.compute_dtype(), 1, tools_.model().hidden_size);
}

SwiGlu SharedExpert::swiglu_op(const LayerSite& at, const TensorView& product) const {
    const TensorView& made = at.saved.experts.shared.gate_up;
    const std::int64_t f = at.experts().shared_size;
    return {made.col_range(0, f), made.col_range(f, f), product, {}, at.experts().activation};
}

void SharedExpert::make_gate_up(const LayerSite& at, const TensorView& h) const {
    const GroupSite gate_up = at.group(LinearGroup::shared_gate_up);
    const DenseActivations& saved = at.saved.experts.shared;
    tools_.linear.forward(gate_up, {{h}, tools_.columns_of(gate_up, saved.s_gate_up)},
                          tools_.outputs_of(gate_up, saved.gate_up), {});
    if (!at.experts().shared_gate) return;
    const Scratch logits = lease(&ExpertScratch::logits, h.rows, 1);
    Gemm gate{h, gate_of(at), logits};
    gate.transpose_b = true;
    tools_.backend.gemm(gate);
    tools_.backend.route({logits, routes_of(at), false, RouterScores::sigmoid});
}

void SharedExpert::make_output(const LayerSite& at, const TensorView& output) const {
    const GroupSite down = at.group(LinearGroup::shared_down);
    const Scratch product =
        lease(&ExpertScratch::shared_product, at.rows.tokens, at.experts().shared_size);
    tools_.backend.swiglu(swiglu_op(at, product));
    const GroupInput input{{product}, tools_.columns_of(down, at.saved.experts.shared.s_down)};
    if (output.data == nullptr) return tools_.linear.shrink(down, input);
    tools_.linear.forward(down, input, {output}, {});
}

void SharedExpert::add(const LayerSite& at, const Branch& branch) const {
    if (!branch.has_sum()) return make_output(at, {});
    if (at.experts().shared_gate) {
        const Scratch output = lease(&ExpertScratch::shared_out, at.rows.tokens, branch.sum().cols);
        make_output(at, output);
        return tools_.backend.combine_experts(
            {branch.sum(), output, branch.sum(), routes_of(at), true});
    }
    const Scratch output = tools_.workspace.inner(at.rows.tokens, branch.sum().cols);
    make_output(at, output);
    tools_.backend.add({branch.sum(), output});
}

bool SharedExpert::needs_input(const LayerSite& at) const {
    return tools_.linear.has_lora(at.group(LinearGroup::shared_gate_up));
}

void SharedExpert::gate_backward(const LayerSite& at, const TensorView& dy,
                                 const TensorView& d_logits) const {
    const ExpertRoutes routes = routes_of(at);
    const Scratch weights = lease(&ExpertScratch::weights, dy.rows, 1);
    {
        const Scratch output = lease(&ExpertScratch::shared_out, dy.rows, dy.cols);
        make_output(at, output);
        tools_.backend.weigh_experts({dy, output, weights->f32(), routes});
    }
    tools_.backend.route_backward({d_logits, weights->f32(), routes, false, RouterScores::sigmoid});
}

void SharedExpert::backward(const LayerSite& at, const Branch& branch, const TensorView& h,
                            const TensorView& dh) const {
    if (!at.experts().shared_gate) return mlp_backward(at, branch.gradient(), h, dh);
    const Scratch d_out = lease(&ExpertScratch::shared_d_out, dh.rows, dh.cols);
    const Scratch d_logits = lease(&ExpertScratch::d_logits, dh.rows, 1);
    tools_.backend.copy({d_out, branch.gradient()});
    gate_backward(at, d_out, d_logits);
    mlp_backward(at, d_out, h, dh);
    Gemm through_gate{d_logits, gate_of(at), dh};
    through_gate.beta = 1.0F;
    tools_.backend.gemm(through_gate);
}

void SharedExpert::mlp_backward(const LayerSite& at, const TensorView& d_out, const TensorView& h,
                                const TensorView& dh) const {
    LoraLinear& linear = tools_.linear;
    const GroupSite down = at.group(LinearGroup::shared_down);
    const GroupSite gate_up = at.group(LinearGroup::shared_gate_up);
    const DenseActivations& saved = at.saved.experts.shared;
    const std::int64_t f = at.experts().shared_size;
    const std::int64_t rows = at.rows.tokens;
    linear.backward_b(down, d_out, tools_.columns_of(down, saved.s_down));
    const Scratch d_gate_up =
        tools_.workspace.gradient(rows, 2 * f, gate_up.count() * tools_.view.replica.saved_columns);
    {
        const Scratch inner = lease(&ExpertScratch::shared_inner, rows, f);
        const Scratch product = lease(&ExpertScratch::shared_product, rows, f);
        linear.backward_x(down, {d_out}, inner);
        const SwiGlu forward = swiglu_op(at, product);
        tools_.backend.swiglu_backward({forward.gate,
                                        forward.up,
                                        inner,
                                        d_gate_up->col_range(0, f),
                                        d_gate_up->col_range(f, f),
                                        product,
                                        {},
                                        at.experts().activation});
        linear.backward_a(down, product, d_out);
    }
    linear.backward_b(gate_up, d_gate_up, tools_.columns_of(gate_up, saved.s_gate_up));
    linear.backward_x(gate_up, {d_gate_up}, dh);
    if (h.data != nullptr) linear.backward_a(gate_up, h, d_gate_up);
}

}  // namespace loratrain
