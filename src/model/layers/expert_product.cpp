#include "model/layers/expert_product.h"

namespace loratrain {

void multiply_experts(const ExpertProduct& op, void* scratch, Backend& backend) {
    const std::int64_t rows = op.matrix.rows / op.routes.experts;
    for (std::int64_t expert = 0; expert < op.routes.experts; ++expert) {
        const std::int64_t first = op.routes.first(expert);
        const std::int64_t count = op.routes.count(expert);
        if (count == 0) continue;
        const TensorView w = gemm_matrix(op.matrix.row_range(expert * rows, rows),
                                         {rows, op.matrix.cols}, scratch, backend);
        Gemm gemm{op.x.row_range(first, count), w, op.y.row_range(first, count)};
        gemm.transpose_b = op.way == ExpertProduct::Way::forward;
        backend.gemm(gemm);
    }
}

}  // namespace loratrain
