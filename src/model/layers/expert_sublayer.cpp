#include "model/layers/expert_sublayer.h"

#include <array>

namespace loratrain {

Scratch ExpertSublayer::lease(ScratchMatrix ExpertScratch::*which, std::int64_t rows) const {
    const ScratchMatrix& matrix = tools_.workspace.kinds().experts.*which;
    return tools_.workspace.lease(matrix, rows, 0, matrix.columns);
}

Scratch ExpertSublayer::lease_s(ScratchMatrix ExpertScratch::*which, std::int64_t rows,
                                int linear) const {
    const std::int64_t columns = tools_.view.replica.saved_columns;
    return tools_.workspace.lease(tools_.workspace.kinds().experts.*which, rows, linear * columns,
                                  columns);
}

ExpertRoutes ExpertSublayer::routes_of(const LayerSite& at) const {
    const ExpertSpec& experts = at.experts();
    const RoutesLayout layout = routes_layout(tools_.view, experts);
    char* start = static_cast<char*>(at.saved.experts.routes);
    const auto floats = [&](std::uint64_t offset) {
        return reinterpret_cast<float*>(start + offset);
    };
    const auto numbers = [&](std::uint64_t offset) {
        return reinterpret_cast<std::int32_t*>(start + offset);
    };
    ExpertRoutes routes{at.rows.tokens,         experts.count,
                        experts.per_token,      floats(layout.probabilities),
                        floats(layout.weights), numbers(layout.chosen),
                        numbers(layout.places), numbers(layout.rows),
                        numbers(layout.offsets)};
    if (!joins_experts(tools_.view, experts)) return routes;
    routes.tiles = numbers(layout.tiles);
    routes.counters = numbers(layout.counters);
    routes.entries = numbers(layout.entries);
    return routes;
}

void ExpertSublayer::forward(const LayerSite& at, const Branch& branch) {
    const std::int64_t copies = routes_of(at).copies();
    const Scratch product = branch.has_sum() ? lease(&ExpertScratch::product, copies) : Scratch{};
    {
        const Scratch h = branch.make_input();
        make_gate_up(at, h, product);
    }
    if (branch.has_sum()) combine(at, branch, product);
}

void ExpertSublayer::backward(const LayerSite& at, const Branch& branch, bool /*need_dx*/) {
    const Scratch dh = tools_.workspace.inner(branch.x().rows, branch.x().cols);
    const Scratch h = needs_input(at) ? branch.make_input() : Scratch{};
    backward_to_input(at, h, branch.gradient(), dh);
    branch.input_backward(dh);
}

Scratch ExpertSublayer::weights_of(const FrozenMatrix& matrix) const {
    return tools_.workspace.matrix_of(matrix.view, {matrix.view.rows, matrix.view.cols});
}

void ExpertSublayer::multiply(const LayerSite& at, const FrozenMatrix& matrix, const TensorView& x,
                              const TensorView& y, bool backward) {
    const Scratch w = weights_of(matrix);
    tools_.backend.multiply_experts({x, w, y, routes_of(at), backward});
}

void ExpertSublayer::add_lora(const LayerSite& at, Linear linear, int number, const TensorView& x,
                              const TensorView& y) {
    const ExpertLoraLinear::Site site = lora_site(at);
    if (!lora_.is_on(site, linear)) return;
    const Scratch s = lease_s(&ExpertScratch::s, x.rows, number);
    lora_.shrink(site, linear, x, s);
    lora_.expand(site, linear, s, y);
}

void ExpertSublayer::make_gate_up(const LayerSite& at, const TensorView& h,
                                  const TensorView& product) {
    const ExpertSpec& experts = at.experts();
    const ExpertWeights& weights = at.weights.experts;
    const ExpertRoutes routes = routes_of(at);
    const TensorView& gate_up = at.saved.experts.gate_up;
    const Scratch logits = lease(&ExpertScratch::router, h.rows);
    Gemm router{
        h, matrix(at.weights.tensor(LayerTensor::router).data(), h.dtype, experts.count, h.cols),
        logits};
    router.transpose_b = true;
    tools_.backend.gemm(router);
    tools_.backend.route({logits, routes, experts.normalised});
    const Scratch rows = lease(&ExpertScratch::rows, routes.copies());
    if (!needs_input(at)) {
        const Scratch w = weights_of(weights.gate_up);
        return tools_.backend.expert_gate_up(
            {h, w, gate_up, product, rows, routes, at.experts().activation});
    }
    tools_.backend.gather_rows({rows, h, routes.rows});
    multiply(at, weights.gate_up, rows, gate_up, false);
    add_lora(at, Linear::gate, 0, rows, gate_up.col_range(0, experts.size));
    add_lora(at, Linear::up, 1, rows, gate_up.col_range(experts.size, experts.size));
    if (product.data != nullptr) make_product(at, product);
}

void ExpertSublayer::make_product(const LayerSite& at, const TensorView& product) {
    const std::int64_t f = at.experts().size;
    const TensorView& gate_up = at.saved.experts.gate_up;
    tools_.backend.swiglu(
        {gate_up.col_range(0, f), gate_up.col_range(f, f), product, {}, at.experts().activation});
}

void ExpertSublayer::combine(const LayerSite& at, const Branch& branch, const TensorView& product) {
    const ExpertRoutes routes = routes_of(at);
    const Scratch rows = lease(&ExpertScratch::rows, routes.copies());
    multiply(at, at.weights.experts.down, product, rows, false);
    add_lora(at, Linear::down, 0, product, rows);
    tools_.backend.combine_experts({branch.sum(), rows, branch.x(), routes, true});
}

bool ExpertSublayer::needs_input(const LayerSite& at) {
    const ExpertLoraLinear::Site site = lora_site(at);
    return lora_.is_on(site, Linear::gate) || lora_.is_on(site, Linear::up);
}

void ExpertSublayer::backward_down(const LayerSite& at, const TensorView& dy,
                                   const TensorView& d_gate_up, float* d_weights) {
    const ExpertRoutes routes = routes_of(at);
    const Scratch rows = lease(&ExpertScratch::rows, routes.copies());
    const Scratch product = lease(&ExpertScratch::product, routes.copies());
    const Scratch inner = lease(&ExpertScratch::inner, routes.copies());
    if (!lora_.is_on(lora_site(at), Linear::down)) {
        const Scratch w = weights_of(at.weights.experts.down);
        return tools_.backend.expert_down_backward({dy, w, at.saved.experts.gate_up, d_gate_up,
                                                    d_weights, rows, product, inner, routes,
                                                    at.experts().activation});
    }
    tools_.backend.gather_rows({rows, dy, routes.rows});
    multiply(at, at.weights.experts.down, rows, inner, true);
    make_product(at, product);
    backward_down_lora(at, rows, product, inner, d_weights);
    const std::int64_t f = product->cols;
    tools_.backend.swiglu_backward({at.saved.experts.gate_up.col_range(0, f),
                                    at.saved.experts.gate_up.col_range(f, f),
                                    inner,
                                    d_gate_up.col_range(0, f),
                                    d_gate_up.col_range(f, f),
                                    {},
                                    {},
                                    at.experts().activation});
}

void ExpertSublayer::backward_down_lora(const LayerSite& at, const TensorView& dy,
                                        const TensorView& product, const TensorView& inner,
                                        float* d_weights) {
    const ExpertRoutes routes = routes_of(at);
    const ExpertLoraLinear::Site site = lora_site(at);
    const bool lora = lora_.is_on(site, Linear::down);
    const Scratch s = lora ? lease_s(&ExpertScratch::s, dy.rows, 0) : Scratch{};
    const Scratch ds = lora ? lease_s(&ExpertScratch::ds, dy.rows, 0) : Scratch{};
    if (lora) {
        lora_.shrink_back(site, Linear::down, dy, ds);
        lora_.expand_back(site, Linear::down, ds, inner);
    }
    tools_.backend.weigh_experts({inner, product, d_weights, routes});
    if (!lora) return;
    lora_.shrink(site, Linear::down, product, s);
    tools_.backend.weigh_rows({s, routes});
    tools_.backend.weigh_rows({ds, routes});
    lora_.add_grad_b(site, Linear::down, dy, s);
    lora_.add_grad_a(site, Linear::down, product, ds);
}

void ExpertSublayer::backward_gate_up(const LayerSite& at, const TensorView& h,
                                      const TensorView& d_gate_up, const TensorView& rows) {
    if (!needs_input(at)) return;
    const std::int64_t f = at.experts().size;
    const ExpertLoraLinear::Site site = lora_site(at);
    const Scratch x = lease(&ExpertScratch::input, rows.rows);
    tools_.backend.gather_rows({x, h, routes_of(at).rows});
    constexpr std::array linears{Linear::gate, Linear::up};
    for (int i = 0; i < 2; ++i) {
        const Linear linear = linears[static_cast<std::size_t>(i)];
        if (!lora_.is_on(site, linear)) continue;
        const TensorView dy = d_gate_up.col_range(i * f, f);
        const Scratch s = lease_s(&ExpertScratch::s, rows.rows, i);
        const Scratch ds = lease_s(&ExpertScratch::ds, rows.rows, i);
        lora_.shrink(site, linear, x, s);
        lora_.add_grad_b(site, linear, dy, s);
        lora_.shrink_back(site, linear, dy, ds);
        lora_.add_grad_a(site, linear, x, ds);
        lora_.expand_back(site, linear, ds, rows);
    }
}

void ExpertSublayer::backward_to_input(const LayerSite& at, const TensorView& h,
                                       const TensorView& dy, const TensorView& dh) {
    const ExpertSpec& experts = at.experts();
    const ExpertWeights& weights = at.weights.experts;
    const ExpertRoutes routes = routes_of(at);
    const Scratch d_gate_up = lease(&ExpertScratch::gradient, routes.copies());
    const Scratch weighing = lease(&ExpertScratch::weights, routes.copies());
    float* d_weights = weighing->f32();
    backward_down(at, dy, d_gate_up, d_weights);
    const Scratch rows = lease(&ExpertScratch::rows, routes.copies());
    multiply(at, weights.gate_up, d_gate_up, rows, true);
    backward_gate_up(at, h, d_gate_up, rows);
    const Scratch d_logits = lease(&ExpertScratch::router, dy.rows);
    tools_.backend.route_backward({d_logits, d_weights, routes, experts.normalised});
    tools_.backend.gemm(
        {d_logits,
         matrix(at.weights.tensor(LayerTensor::router).data(), dy.dtype, experts.count, dy.cols),
         dh});
    tools_.backend.combine_experts({dh, rows, dh, routes, false});
}

}  // namespace loratrain
