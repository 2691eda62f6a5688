#include "model/expert_mlp.h"

#include <array>

namespace loratrain {

ExpertMlp::ExpertMlp(const ReplicaView& view, const AdapterBank& bank, const Workspace& workspace,
                     Backend& backend)
    : view_(view), workspace_(workspace), backend_(backend), lora_(bank, backend) {}

void ExpertMlp::multiply(const WeightView& matrix, std::int64_t rows, const ExpertRoutes& routes,
                         const TensorView& x, const TensorView& y, Way way) {
    for (std::int64_t expert = 0; expert < routes.experts; ++expert) {
        const std::int64_t first = routes.first(expert);
        const std::int64_t count = routes.count(expert);
        if (count == 0) continue;
        const TensorView w = gemm_matrix(matrix.row_range(expert * rows, rows), {rows, matrix.cols},
                                         workspace_.staged(), backend_);
        Gemm op{x.row_range(first, count), w, y.row_range(first, count)};
        op.transpose_b = way == Way::forward;
        backend_.gemm(op);
    }
}

void ExpertMlp::add_lora(const Site& site, const LayerActivations& saved, Linear linear, int number,
                         const TensorView& x, const TensorView& y) {
    const ExpertLoraLinear::Site at = lora_site(site, saved);
    if (!lora_.is_on(at, linear)) return;
    const TensorView s = workspace_.expert_s(x.rows, number);
    lora_.shrink(at, linear, x, s);
    lora_.expand(at, linear, s, y);
}

void ExpertMlp::make_gate_up(const Site& site, const TensorView& h, const LayerActivations& saved) {
    const ExpertSpec& experts = view_.lane_model.experts;
    const TensorView logits = workspace_.router(h.rows);
    Gemm router{h, matrix(site.weights.router.data(), h.dtype, experts.count, h.cols), logits};
    router.transpose_b = true;
    backend_.gemm(router);
    backend_.route({logits, saved.routes, experts.normalised});
    const TensorView rows = workspace_.expert_rows(saved.routes.copies());
    backend_.gather_rows(rows, h, saved.routes.rows, 1.0F);
    multiply(site.weights.gate_up.view, 2 * experts.size, saved.routes, rows, saved.gate_up,
             Way::forward);
    add_lora(site, saved, Linear::gate, 0, rows, saved.gate_up.col_range(0, experts.size));
    add_lora(site, saved, Linear::up, 1, rows, saved.gate_up.col_range(experts.size, experts.size));
}

TensorView ExpertMlp::product_of(const LayerActivations& saved) {
    const std::int64_t f = view_.lane_model.experts.size;
    const TensorView product = workspace_.expert_product(saved.routes.copies());
    backend_.swiglu({saved.gate_up.col_range(0, f),
                     saved.gate_up.col_range(f, f),
                     product,
                     {},
                     view_.lane_model.activation});
    return product;
}

void ExpertMlp::forward(const Site& site, const LayerActivations& saved, const TensorView& y) {
    const TensorView product = product_of(saved);
    const TensorView rows = workspace_.expert_rows(saved.routes.copies());
    multiply(site.weights.down.view, view_.lane_model.hidden_size, saved.routes, product, rows,
             Way::forward);
    add_lora(site, saved, Linear::down, 0, product, rows);
    backend_.combine_experts({y, rows, saved.x2, saved.routes, true});
}

bool ExpertMlp::needs_input(const Site& site, const LayerActivations& saved) {
    const ExpertLoraLinear::Site at = lora_site(site, saved);
    return lora_.is_on(at, Linear::gate) || lora_.is_on(at, Linear::up);
}

void ExpertMlp::backward_down(const Site& site, const LayerActivations& saved, const TensorView& dy,
                              const TensorView& inner, float* d_weights) {
    const ExpertRoutes& routes = saved.routes;
    multiply(site.weights.down.view, view_.lane_model.hidden_size, routes, dy, inner,
             Way::backward);
    const TensorView product = product_of(saved);
    const ExpertLoraLinear::Site at = lora_site(site, saved);
    const bool lora = lora_.is_on(at, Linear::down);
    const TensorView s = lora ? workspace_.expert_s(dy.rows, 0) : TensorView{};
    const TensorView ds = lora ? workspace_.expert_ds(dy.rows, 0) : TensorView{};
    if (lora) {
        lora_.shrink_back(at, Linear::down, dy, ds);
        lora_.expand_back(at, Linear::down, ds, inner);
    }
    backend_.weigh_experts({inner, product, d_weights, routes});
    if (!lora) return;
    lora_.shrink(at, Linear::down, product, s);
    backend_.weigh_rows({s, routes});
    backend_.weigh_rows({ds, routes});
    lora_.add_grad_b(at, Linear::down, dy, s);
    lora_.add_grad_a(at, Linear::down, product, ds);
}

void ExpertMlp::backward_gate_up(const Site& site, const LayerActivations& saved,
                                 const TensorView& h, const TensorView& d_gate_up,
                                 const TensorView& rows) {
    if (!needs_input(site, saved)) return;
    const std::int64_t f = view_.lane_model.experts.size;
    const ExpertLoraLinear::Site at = lora_site(site, saved);
    const TensorView x = workspace_.expert_input(rows.rows);
    backend_.gather_rows(x, h, saved.routes.rows, 1.0F);
    constexpr std::array linears{Linear::gate, Linear::up};
    for (int i = 0; i < 2; ++i) {
        const Linear linear = linears[static_cast<std::size_t>(i)];
        if (!lora_.is_on(at, linear)) continue;
        const TensorView dy = d_gate_up.col_range(i * f, f);
        const TensorView s = workspace_.expert_s(rows.rows, i);
        const TensorView ds = workspace_.expert_ds(rows.rows, i);
        lora_.shrink(at, linear, x, s);
        lora_.add_grad_b(at, linear, dy, s);
        lora_.shrink_back(at, linear, dy, ds);
        lora_.add_grad_a(at, linear, x, ds);
        lora_.expand_back(at, linear, ds, rows);
    }
}

void ExpertMlp::backward(const Site& site, const LayerActivations& saved, const TensorView& h,
                         const TensorView& dy, const TensorView& dh) {
    const ExpertSpec& experts = view_.lane_model.experts;
    const ExpertRoutes& routes = saved.routes;
    const std::int64_t f = experts.size;
    const TensorView rows = workspace_.expert_rows(routes.copies());
    const TensorView inner = workspace_.expert_inner(routes.copies());
    const TensorView d_gate_up = workspace_.expert_gradient(routes.copies());
    float* d_weights = workspace_.expert_weights();
    backend_.gather_rows(rows, dy, routes.rows, 1.0F);
    backward_down(site, saved, rows, inner, d_weights);
    backend_.swiglu_backward({saved.gate_up.col_range(0, f),
                              saved.gate_up.col_range(f, f),
                              inner,
                              d_gate_up.col_range(0, f),
                              d_gate_up.col_range(f, f),
                              {},
                              {},
                              view_.lane_model.activation});
    multiply(site.weights.gate_up.view, 2 * f, routes, d_gate_up, rows, Way::backward);
    backward_gate_up(site, saved, h, d_gate_up, rows);
    const TensorView d_logits = workspace_.router(dy.rows);
    backend_.route_backward({d_logits, d_weights, routes, experts.normalised});
    backend_.gemm(
        {d_logits, matrix(site.weights.router.data(), dy.dtype, experts.count, dy.cols), dh});
    backend_.combine_experts({dh, rows, dh, routes, false});
}

}  // namespace loratrain
