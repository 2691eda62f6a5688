#include "model/expert_mlp.h"

namespace loratrain {

ExpertMlp::ExpertMlp(const ReplicaView& view, const Workspace& workspace, Backend& backend)
    : view_(view), workspace_(workspace), backend_(backend) {}

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

void ExpertMlp::make_gate_up(const ExpertWeights& weights, const TensorView& h,
                             const LayerActivations& saved) {
    const ExpertSpec& experts = view_.lane_model.experts;
    const TensorView logits = workspace_.router(h.rows);
    Gemm router{h, matrix(weights.router.data(), h.dtype, experts.count, h.cols), logits};
    router.transpose_b = true;
    backend_.gemm(router);
    backend_.route({logits, saved.routes, experts.normalised});
    const TensorView rows = workspace_.expert_rows(saved.routes.copies());
    backend_.gather_rows(rows, h, saved.routes.rows, 1.0F);
    multiply(weights.gate_up.view, 2 * experts.size, saved.routes, rows, saved.gate_up,
             Way::forward);
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

void ExpertMlp::forward(const ExpertWeights& weights, const LayerActivations& saved,
                        const TensorView& y) {
    const TensorView product = product_of(saved);
    const TensorView rows = workspace_.expert_rows(saved.routes.copies());
    multiply(weights.down.view, view_.lane_model.hidden_size, saved.routes, product, rows,
             Way::forward);
    backend_.combine_experts({y, rows, saved.x2, saved.routes, true});
}

void ExpertMlp::backward(const ExpertWeights& weights, const LayerActivations& saved,
                         const TensorView& dy, const TensorView& dh) {
    const ExpertSpec& experts = view_.lane_model.experts;
    const ExpertRoutes& routes = saved.routes;
    const std::int64_t f = experts.size;
    const TensorView rows = workspace_.expert_rows(routes.copies());
    const TensorView inner = workspace_.expert_inner(routes.copies());
    const TensorView d_gate_up = workspace_.expert_gradient(routes.copies());
    backend_.gather_rows(rows, dy, routes.rows, 1.0F);
    multiply(weights.down.view, view_.lane_model.hidden_size, routes, rows, inner, Way::backward);
    float* d_weights = workspace_.expert_weights();
    backend_.weigh_experts({inner, product_of(saved), d_weights, routes});
    backend_.swiglu_backward({saved.gate_up.col_range(0, f),
                              saved.gate_up.col_range(f, f),
                              inner,
                              d_gate_up.col_range(0, f),
                              d_gate_up.col_range(f, f),
                              {},
                              {},
                              view_.lane_model.activation});
    multiply(weights.gate_up.view, 2 * f, routes, d_gate_up, rows, Way::backward);
    const TensorView d_logits = workspace_.router(dy.rows);
    backend_.route_backward({d_logits, d_weights, routes, experts.normalised});
    backend_.gemm({d_logits, matrix(weights.router.data(), dy.dtype, experts.count, dy.cols), dh});
    backend_.combine_experts({dh, rows, dh, routes, false});
}

}  // namespace loratrain
