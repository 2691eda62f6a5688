#include "model/layers/expert_product.h"

namespace loratrain {

TensorView weights_of_experts(const WeightView& matrix) {
    const bool is_resident = matrix.residence == WeightResidence::resident;
    return is_resident ? matrix.dense() : TensorView{};
}

void multiply_experts(const WeightView& matrix, ExpertProduct op, void* scratch, Backend& backend) {
    op.w = weights_of_experts(matrix);
    if (op.w.data != nullptr) return backend.multiply_experts(op);
    const std::int64_t rows = matrix.rows / op.routes.experts;
    for_each_expert(backend, op.routes,
                    [&](std::int64_t e, std::int64_t first, std::int64_t count) {
                        const TensorView w = gemm_matrix(matrix.row_range(e * rows, rows),
                                                         {rows, matrix.cols}, scratch, backend);
                        Gemm gemm{op.x.row_range(first, count), w, op.y.row_range(first, count)};
                        gemm.transpose_b = !op.backward;
                        backend.gemm(gemm);
                    });
}

}  // namespace loratrain
