#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/gemm_cublaslt.h"
#include "kernels/elementwise.h"

namespace loratrain {

void CudaBackend::gemm(const Gemm& op) {
    const TensorView& added = op.added();
    require_compute({&op.a, &op.b});
    const bool widens = op.c.dtype == DType::f32 && op.beta == 0.0F && op.d.data == nullptr;
    if (!widens) require_compute({&op.c, &added});
    const std::int64_t m = op.transpose_a ? op.a.cols : op.a.rows;
    const std::int64_t k = op.transpose_a ? op.a.rows : op.a.cols;
    const std::int64_t n = op.transpose_b ? op.b.rows : op.b.cols;
    const std::int64_t k_of_b = op.transpose_b ? op.b.cols : op.b.rows;
    LORATRAIN_CHECK(m == op.c.rows && n == op.c.cols && k == k_of_b, "gemm of [", m, ", ", k,
                    "] and [", k_of_b, ", ", n, "] into [", op.c.rows, ", ", op.c.cols, "]");
    LORATRAIN_CHECK(added.rows == m && added.cols == n, "gemm into [", m, ", ", n, "] that adds [",
                    added.rows, ", ", added.cols, "]");
    if (m == 0 || n == 0) return;
    if (k > 0) {
        gemm_->run(op);
        return;
    }
    if (op.beta != 0.0F && added.data != op.c.data) copy({op.c, added});
    if (op.beta != 1.0F) {
        CUDA_CHECK(kernels::scale(stream_, matrix_of(op.c), op.beta));
    }
}

}  // namespace loratrain
