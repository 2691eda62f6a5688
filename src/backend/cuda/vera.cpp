#include "kernels/vera.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace loratrain {

namespace {

kernels::VeraProductParams params_of(const VeraProduct& op) {
    return {op.b, op.scale_d, op.scale_b, op.product, op.out, op.rank};
}

}  // namespace

void CudaBackend::vera_product(const VeraProduct& op) {
    CUDA_CHECK(kernels::vera_product(stream_, params_of(op)));
}

void CudaBackend::vera_gradients(const VeraGradients& op) {
    CUDA_CHECK(
        kernels::vera_gradients(stream_, {params_of(op.of), op.gradient, op.grad_d, op.grad_b}));
}

}  // namespace loratrain
