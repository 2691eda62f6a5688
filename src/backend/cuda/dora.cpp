#include "kernels/dora.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace loratrain {

void CudaBackend::dora_norms(const DoraNorms& op) {
    require_compute({&op.w});
    CUDA_CHECK(kernels::dora_norms(
        stream_, {matrix_of(op.w), op.slot.a, op.slot.b, op.slot.rank, op.slot.scale, op.squares}));
}

void CudaBackend::dora_scale(const DoraScale& op) {
    require_compute({&op.target, &op.source});
    if (op.added.data != nullptr) require_compute({&op.added});
    check_shapes(op);
    CUDA_CHECK(
        kernels::dora_scale(stream_, {matrix_of(op.target), matrix_of(op.source), op.magnitude,
                                      op.squares, op.less_one ? 1.0F : 0.0F, matrix_of(op.added)}));
}

void CudaBackend::dora_grad_magnitude(const DoraGradMagnitude& op) {
    require_compute({&op.dy, &op.v});
    check_shapes(op);
    CUDA_CHECK(kernels::dora_grad_magnitude(stream_, {matrix_of(op.dy), matrix_of(op.v), op.squares,
                                                      op.gradient, op.magnitude, op.scaled}));
}

void CudaBackend::drop_rows(const DropRows& op) {
    require_compute({&op.y, &op.x});
    check_shapes(op);
    CUDA_CHECK(kernels::drop_rows(
        stream_,
        {matrix_of(op.y), matrix_of(op.x), op.positions, op.sample_ids, op.slot.dropout_key,
         op.step, op.slot.dropout, op.slot.dropout_column / 8, op.accumulate}));
}

}  // namespace loratrain
