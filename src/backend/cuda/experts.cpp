#include "kernels/experts.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/grouped/grouped.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "base/operators.h"

namespace loratrain {

namespace {

static_assert(kernels::most_experts == most_experts);
static_assert(kernels::most_experts_per_token == most_experts_per_token);

kernels::Routes routes_of(const ExpertRoutes& routes) {
    return {routes.tokens, routes.experts, routes.per_token, routes.probabilities, routes.weights,
            routes.chosen, routes.places,  routes.rows,      routes.offsets};
}

kernels::ExpertLoraParams params_of(const ExpertLora& op, const LoraSegment& segment) {
    const LoraSlot& slot = op.slots[static_cast<std::size_t>(segment.slot)];
    kernels::ExpertLoraParams params;
    params.wide = matrix_of(op.wide);
    params.narrow = matrix_of(op.narrow);
    params.routes = routes_of(op.routes);
    params.begin = segment.begin;
    params.end = segment.end;
    params.factor = op.of_b ? slot.b : slot.a;
    params.gradient = op.of_b ? slot.grad_b : slot.grad_a;
    params.rank = slot.rank;
    params.column = slot.column;
    params.scale = slot.scale;
    params.of_b = op.of_b;
    return params;
}

kernels::ExpertRows rows_of(const ExpertRoutes& routes, int shared_limit) {
    const kernels::ExpertTables tables{reinterpret_cast<kernels::ExpertTile*>(routes.tiles),
                                       routes.counters, routes.entries};
    return {routes_of(routes), tables, shared_limit};
}

/// For the kernels of all experts at once.
bool are_wide(const ExpertRoutes& routes, std::initializer_list<const TensorView*> views) {
    return routes.tiles != nullptr &&
           std::all_of(views.begin(), views.end(), [](const TensorView* view) {
               return kernels::grouped_takes(matrix_of(*view));
           });
}

}  // namespace

void CudaBackend::route(const Route& op) {
    check_shapes(op);
    require_compute({&op.logits});
    CUDA_CHECK(kernels::route(stream_, matrix_of(op.logits), routes_of(op.to), op.normalised));
    if (op.to.tiles == nullptr) return;
    CUDA_CHECK(kernels::make_expert_tables(stream_, rows_of(op.to, shared_limit_)));
}

void CudaBackend::multiply_experts(const ExpertProduct& op) {
    check_shapes(op);
    require_compute({&op.x, &op.w, &op.y});
    if (!are_wide(op.routes, {&op.x, &op.w, &op.y})) return run_in_parts(*this, op);
    const kernels::ExpertRows rows = rows_of(op.routes, shared_limit_);
    CUDA_CHECK(kernels::expert_product(stream_, rows, matrix_of(op.x), op.w.data, matrix_of(op.y),
                                       op.backward));
}

bool CudaBackend::takes_at_once(const ExpertGateUp& op) const {
    const std::int64_t f = op.gate_up.cols / 2;
    const TensorView up = op.gate_up.col_range(f, f);
    return are_wide(op.routes, {&op.h, &op.w, &op.gate_up, &up}) &&
           (op.product.data == nullptr || are_wide(op.routes, {&op.product}));
}

void CudaBackend::expert_gate_up(const ExpertGateUp& op) {
    check_shapes(op);
    require_compute({&op.h, &op.w, &op.gate_up});
    if (!takes_at_once(op)) return run_in_parts(*this, op);
    const kernels::Matrix product =
        op.product.data == nullptr ? kernels::Matrix{} : matrix_of(op.product);
    CUDA_CHECK(kernels::expert_gate_up(
        stream_, rows_of(op.routes, shared_limit_),
        {matrix_of(op.h), op.w.data, matrix_of(op.gate_up), product, gate_of(op.activation)}));
}

bool CudaBackend::takes_at_once(const ExpertDownBackward& op) const {
    return are_wide(op.routes, {&op.dy, &op.w, &op.gate_up, &op.d_gate_up});
}

void CudaBackend::expert_down_backward(const ExpertDownBackward& op) {
    check_shapes(op);
    require_compute({&op.dy, &op.w, &op.gate_up, &op.d_gate_up});
    if (!takes_at_once(op)) return run_in_parts(*this, op);
    kernels::ExpertDownBackward params;
    params.dy = matrix_of(op.dy);
    params.w = op.w.data;
    params.gate_up = matrix_of(op.gate_up);
    params.d_gate_up = matrix_of(op.d_gate_up);
    params.parts = static_cast<float*>(reserve_workspace(
        static_cast<std::size_t>(op.gate_up.rows * kernels::expert_parts_bytes(op.w.cols))));
    params.d_weights = op.d_weights;
    params.function = gate_of(op.activation);
    CUDA_CHECK(kernels::expert_down_backward(stream_, rows_of(op.routes, shared_limit_), params));
}

void CudaBackend::combine_experts(const CombineExperts& op) {
    check_shapes(op);
    require_compute({&op.y, &op.x, &op.added});
    CUDA_CHECK(kernels::combine_experts(stream_, matrix_of(op.y), matrix_of(op.x),
                                        matrix_of(op.added), routes_of(op.routes), op.weighted));
}

void CudaBackend::weigh_experts(const WeighExperts& op) {
    check_shapes(op);
    require_compute({&op.inner, &op.product});
    CUDA_CHECK(kernels::weigh_experts(stream_, matrix_of(op.inner), matrix_of(op.product),
                                      op.d_weights, routes_of(op.routes)));
}

void CudaBackend::weigh_rows(const WeighRows& op) {
    check_shapes(op);
    require_compute({&op.x});
    CUDA_CHECK(kernels::weigh_rows(stream_, matrix_of(op.x), routes_of(op.routes)));
}

void CudaBackend::narrow_experts(const ExpertLora& op) {
    check_shapes(op);
    require_compute({&op.wide, &op.narrow});
    CUDA_CHECK(kernels::clear_narrow(stream_, matrix_of(op.narrow)));
    for (const LoraSegment& segment : op.rows.segments) {
        CUDA_CHECK(kernels::narrow_experts(stream_, params_of(op, segment)));
    }
}

void CudaBackend::widen_experts(const ExpertLora& op) {
    check_shapes(op);
    require_compute({&op.wide, &op.narrow});
    for (const LoraSegment& segment : op.rows.segments) {
        CUDA_CHECK(kernels::widen_experts(stream_, params_of(op, segment)));
    }
}

void CudaBackend::add_expert_grads(const ExpertLora& op) {
    check_shapes(op);
    require_compute({&op.wide, &op.narrow});
    for (const LoraSegment& segment : op.rows.segments) {
        CUDA_CHECK(kernels::add_expert_grads(stream_, params_of(op, segment)));
    }
}

void CudaBackend::route_backward(const RouteBackward& op) {
    check_shapes(op);
    require_compute({&op.d_logits});
    CUDA_CHECK(kernels::route_backward(stream_, matrix_of(op.d_logits), op.d_weights,
                                       routes_of(op.routes), op.normalised));
}

}  // namespace loratrain
