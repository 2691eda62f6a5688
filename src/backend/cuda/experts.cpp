#include "kernels/experts.h"

#include "kernels/expert_lora.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "base/expert_limits.h"

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

}  // namespace

void CudaBackend::route(const Route& op) {
    check_shapes(op);
    require_compute({&op.logits});
    CUDA_CHECK(kernels::route(stream_, matrix_of(op.logits), routes_of(op.to), op.normalised));
    download(op.to.host_offsets, op.to.offsets,
             static_cast<std::size_t>(op.to.experts + 1) * sizeof(std::int32_t));
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
