#include "kernels/lane_norm.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace loratrain {

namespace {

kernels::RowSums sums_of(const TensorView& sums) {
    LORATRAIN_CHECK(sums.dtype == DType::f32, "sums of rows in ", to_string(sums.dtype));
    return {static_cast<float*>(sums.data), sums.ld};
}

kernels::LaneNormParams params_of(const LaneNorm& op) {
    return {matrix_of(op.x),
            op.weight,
            op.eps,
            sums_of(op.squares),
            static_cast<float>(op.columns),
            matrix_of(op.y),
            op.weight_offset};
}

}  // namespace

void CudaBackend::row_dots(const RowDots& op) {
    require_compute({&op.a, &op.b});
    CUDA_CHECK(kernels::row_dots(stream_, {matrix_of(op.a), matrix_of(op.b), op.weight,
                                           op.weight_offset, sums_of(op.sums)}));
}

void CudaBackend::lane_norm(const LaneNorm& op) {
    require_compute({&op.x, &op.y});
    CUDA_CHECK(kernels::lane_norm(stream_, params_of(op)));
}

void CudaBackend::lane_norm_backward(const LaneNormBackward& op) {
    require_compute({&op.of.x, &op.dy, &op.dx});
    CUDA_CHECK(kernels::lane_norm_backward(
        stream_, {params_of(op.of), sums_of(op.dots), matrix_of(op.dy), matrix_of(op.dx)}));
}

}  // namespace loratrain
