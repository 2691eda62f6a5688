#include "kernels/experts.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace loratrain {

namespace {

kernels::Routes routes_of(const ExpertRoutes& routes) {
    return {routes.tokens, routes.experts, routes.per_token, routes.probabilities, routes.weights,
            routes.chosen, routes.places,  routes.rows,      routes.offsets};
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

void CudaBackend::route_backward(const RouteBackward& op) {
    check_shapes(op);
    require_compute({&op.d_logits});
    CUDA_CHECK(kernels::route_backward(stream_, matrix_of(op.d_logits), op.d_weights,
                                       routes_of(op.routes), op.normalised));
}

}  // namespace loratrain
