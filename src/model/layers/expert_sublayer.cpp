#include "model/layers/expert_sublayer.h"

#include "model/layers/expert_routes.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

/// Null where the layer has none.
const float* bias_of(const LayerSite& at, LayerTensor tensor) {
    return static_cast<const float*>(at.weights.tensor(tensor).data());
}

}  // namespace

Scratch ExpertSublayer::lease(ScratchMatrix ExpertScratch::*which, std::int64_t rows) const {
    const ScratchMatrix& matrix = tools_.workspace.kinds().experts.*which;
    return tools_.workspace.lease(matrix, rows, 0, matrix.columns);
}

Scratch ExpertSublayer::lease_ds(const LayerSite& at, ExpertLinears linears) const {
    if (!lora_.is_on(lora_site(at), linears)) return {};
    return tools_.workspace.lease(tools_.workspace.kinds().experts.ds, routes_of(at).copies(), 0,
                                  std::ssize(linears) * tools_.view.replica.saved_columns);
}

ExpertRoutes ExpertSublayer::routes_of(const LayerSite& at) const {
    const ExpertSpec& experts = at.experts();
    const RoutesLayout layout = routes_layout(tools_.view, experts);
    char* start = static_cast<char*>(at.saved.experts.routes);
    const Slice own = lane_experts(experts, {tools_.lanes.index(), tools_.lanes.count()});
    ExpertRoutes sizes{at.rows.tokens, experts.held(), experts.per_token};
    sizes.before = own.first;
    sizes.others = experts.count - experts.held();
    ExpertRoutes routes = routes_at(layout, start, sizes);
    if (!joins_experts(tools_.view, experts)) return routes;
    const auto numbers = [&](std::uint64_t offset) {
        return reinterpret_cast<std::int32_t*>(start + offset);
    };
    routes.tiles = numbers(layout.tiles);
    routes.counters = numbers(layout.counters);
    routes.entries = numbers(layout.entries);
    return routes;
}

Route ExpertSublayer::route_op(const LayerSite& at, const TensorView& logits) const {
    const ExpertSpec& experts = at.experts();
    const void* bias = at.weights.tensor(LayerTensor::router_bias).data();
    return {logits,
            routes_of(at),
            experts.normalised,
            experts.scores,
            static_cast<const float*>(bias),
            experts.groups,
            experts.used_groups,
            static_cast<float>(experts.scale)};
}

void ExpertSublayer::forward(const LayerSite& at, const Branch& branch) {
    const std::int64_t copies = routes_of(at).copies();
    const bool needs_product = branch.has_sum() || lora_.is_on(lora_site(at), experts_down);
    const Scratch product = needs_product ? lease(&ExpertScratch::product, copies) : Scratch{};
    {
        const bool shared = at.experts().has_shared();
        const Scratch h =
            branch.make_input(shared ? column_blocks(tools_.view, LinearGroup::shared_gate_up) : 1);
        make_gate_up(at, h, product);
        if (shared) shared_.make_gate_up(at, h);
    }
    combine(at, branch, product);
    if (at.experts().has_shared()) shared_.add(at, branch);
    branch.sum_over_lanes();
}

void ExpertSublayer::backward(const LayerSite& at, const Branch& branch, bool /*need_dx*/) {
    const Scratch dh = tools_.workspace.inner(branch.x().rows, branch.x().cols);
    const bool shared = at.experts().has_shared();
    const bool needs_h =
        lora_.is_on(lora_site(at), experts_gate_up) || (shared && shared_.needs_input(at));
    const Scratch h = needs_h ? branch.make_input() : Scratch{};
    if (shared) shared_.backward(at, branch, h, dh);
    backward_to_input(at, h, branch.gradient(), dh);
    branch.input_backward(dh);
}

Scratch ExpertSublayer::weights_of(const ExpertMatrix& experts) const {
    const Fp8Rows& codes = experts.codes;
    if (codes.codes != nullptr) {
        return Scratch(matrix(nullptr, tools_.view.plan.compute, codes.rows, codes.cols));
    }
    const WeightView& view = experts.matrix.view;
    return tools_.workspace.matrix_of(view, {view.rows, view.cols});
}

ExpertSublayer::LeasedCodes ExpertSublayer::codes_of(const ExpertMatrix& experts,
                                                     std::int64_t copies) const {
    if (experts.codes.codes == nullptr) return {};
    LeasedCodes leased{lease(&ExpertScratch::codes, copies),
                       lease(&ExpertScratch::code_scales, copies),
                       {experts.codes, experts.transposed, {}}};
    const std::int64_t bytes =
        leased.rows->cols * static_cast<std::int64_t>(size_of(leased.rows->dtype));
    leased.codes.rows = {static_cast<std::uint8_t*>(leased.rows->data), leased.scales->f32(),
                         copies, bytes, bytes};
    return leased;
}

ExpertLoras ExpertSublayer::forward_lora(const LayerSite& at, ExpertLinears linears,
                                         const ExpertRowsView& x, const TensorView& s,
                                         const TensorView& y) {
    const ExpertLoraLinear::Site site = lora_site(at);
    return lora_.is_on(site, linears) ? lora_.forward(site, linears, x, s, y) : ExpertLoras{};
}

ExpertLoras ExpertSublayer::backward_lora(const LayerSite& at, ExpertLinears linears,
                                          const ExpertRowsView& dy, const TensorView& ds,
                                          const TensorView& dx) {
    const ExpertLoraLinear::Site site = lora_site(at);
    return lora_.is_on(site, linears) ? lora_.backward(site, linears, dy, ds, dx) : ExpertLoras{};
}

void ExpertSublayer::make_gate_up(const LayerSite& at, const TensorView& h,
                                  const TensorView& product) {
    const ExpertSpec& experts = at.experts();
    const ExpertRoutes routes = routes_of(at);
    const TensorView& gate_up = at.saved.experts.gate_up;
    const Scratch logits = lease(&ExpertScratch::logits, h.rows);
    Gemm router{
        h, matrix(at.weights.tensor(LayerTensor::router).data(), h.dtype, experts.count, h.cols),
        logits};
    router.transpose_b = true;
    tools_.backend.gemm(router);
    if (experts.router_bias) {
        tools_.backend.add_bias({logits, at.weights.tensor(LayerTensor::router_logit_bias).data()});
    }
    tools_.backend.route(route_op(at, logits));
    const Scratch rows = lease(&ExpertScratch::rows, routes.copies());
    const ExpertLoras added =
        forward_lora(at, experts_gate_up, {h, true}, at.saved.experts.s_gate_up, gate_up);
    const Scratch w = weights_of(at.weights.experts.gate_up);
    const LeasedCodes coded = codes_of(at.weights.experts.gate_up, routes.copies());
    tools_.backend.expert_gate_up({h, w, gate_up, product, rows, routes, experts.activation, added,
                                   coded.codes, bias_of(at, LayerTensor::experts_gate_up_bias)});
}

void ExpertSublayer::combine(const LayerSite& at, const Branch& branch, const TensorView& product) {
    const ExpertRoutes routes = routes_of(at);
    const Scratch rows = lease(&ExpertScratch::rows, routes.copies());
    const ExpertLoras added =
        forward_lora(at, experts_down, {product}, at.saved.experts.s_down, rows);
    if (!branch.has_sum()) return;
    {
        const Scratch w = weights_of(at.weights.experts.down);
        const LeasedCodes coded = codes_of(at.weights.experts.down, routes.copies());
        tools_.backend.multiply_experts({product, w, rows, routes, false, added, coded.codes,
                                         bias_of(at, LayerTensor::experts_down_bias)});
    }
    tools_.backend.combine_experts({branch.sum(), rows, branch.begin_sum(), routes, true});
}

void ExpertSublayer::backward_down(const LayerSite& at, const TensorView& dy,
                                   const TensorView& d_gate_up, float* d_weights) {
    const ExpertRoutes routes = routes_of(at);
    const Scratch product = lease(&ExpertScratch::product, routes.copies());
    const Scratch ds = lease_ds(at, experts_down);
    backward_inner(at, dy, product, ds, d_gate_up, d_weights);
    if (ds->data == nullptr) return;
    const ExpertLoraLinear::Site site = lora_site(at);
    const TensorView& s = at.saved.experts.s_down;
    tools_.backend.weigh_rows({lora_.used_columns(site, experts_down, s), routes});
    tools_.backend.weigh_rows({lora_.used_columns(site, experts_down, ds), routes});
    lora_.add_gradients(site, experts_down, {product}, ds, {dy, true}, s);
}

void ExpertSublayer::backward_inner(const LayerSite& at, const TensorView& dy,
                                    const TensorView& product, const TensorView& ds,
                                    const TensorView& d_gate_up, float* d_weights) {
    const ExpertRoutes routes = routes_of(at);
    const TensorView& gate_up = at.saved.experts.gate_up;
    const Scratch rows = lease(&ExpertScratch::rows, routes.copies());
    const Scratch inner = lease(&ExpertScratch::inner, routes.copies());
    // Products of all experts at once need no inner: without data, in the same shape. They make
    // product only for the gradients of LoRA.
    TensorView inner_view = product;
    inner_view.data = inner->data;
    TensorView made = product;
    if (inner->data == nullptr && ds.data == nullptr) made.data = nullptr;
    const ExpertLoras added = backward_lora(at, experts_down, {dy, true}, ds, inner_view);
    const Scratch w = weights_of(at.weights.experts.down);
    const LeasedCodes coded = codes_of(at.weights.experts.down, routes.copies());
    tools_.backend.expert_down_backward({dy, w, gate_up, d_gate_up, d_weights, rows, made, inner,
                                         routes, at.experts().activation, added, coded.codes,
                                         bias_of(at, LayerTensor::experts_down_bias)});
}

void ExpertSublayer::backward_gate_up(const LayerSite& at, const TensorView& h,
                                      const TensorView& d_gate_up, const TensorView& rows) {
    const Scratch ds = lease_ds(at, experts_gate_up);
    const ExpertLoras added = backward_lora(at, experts_gate_up, {d_gate_up}, ds, rows);
    {
        const Scratch w = weights_of(at.weights.experts.gate_up);
        const ExpertRoutes routes = routes_of(at);
        const LeasedCodes coded = codes_of(at.weights.experts.gate_up, routes.copies());
        tools_.backend.multiply_experts({d_gate_up, w, rows, routes, true, added, coded.codes});
    }
    if (ds->data == nullptr) return;
    lora_.add_gradients(lora_site(at), experts_gate_up, {h, true}, ds, {d_gate_up},
                        at.saved.experts.s_gate_up);
}

void ExpertSublayer::backward_to_input(const LayerSite& at, const TensorView& h,
                                       const TensorView& dy, const TensorView& dh) {
    const ExpertSpec& experts = at.experts();
    const ExpertRoutes routes = routes_of(at);
    const Scratch d_gate_up = lease(&ExpertScratch::gradient, routes.copies());
    const Scratch weighing = lease(&ExpertScratch::weights, routes.copies());
    float* d_weights = weighing->f32();
    backward_down(at, dy, d_gate_up, d_weights);
    const Scratch rows = lease(&ExpertScratch::rows, routes.copies());
    backward_gate_up(at, h, d_gate_up, rows);
    const Scratch d_logits = lease(&ExpertScratch::d_logits, dy.rows);
    tools_.backend.route_backward({d_logits, d_weights, routes, experts.normalised, experts.scores,
                                   static_cast<float>(experts.scale)});
    Gemm router{
        d_logits,
        matrix(at.weights.tensor(LayerTensor::router).data(), dy.dtype, experts.count, dy.cols),
        dh};
    router.beta = experts.has_shared() ? 1.0F : 0.0F;
    tools_.backend.gemm(router);
    tools_.backend.combine_experts({dh, rows, dh, routes, false});
}

}  // namespace loratrain
