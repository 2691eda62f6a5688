#include "kernels/quantize.h"
#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/gemm_cublaslt.h"

namespace loratrain {

kernels::Fp8Codes codes_of(const Fp8Rows& rows) {
    return {rows.codes, rows.scales, rows.rows, rows.cols, rows.ld};
}

void CudaBackend::quantize_rows(const QuantizeRows& op) {
    check_shapes(op);
    CUDA_CHECK(kernels::quantize_rows(stream_, matrix_of(op.x), op.column_scales, codes_of(op.to)));
}

void CudaBackend::transpose_codes(const TransposeCodes& op) {
    check_shapes(op);
    CUDA_CHECK(kernels::transpose_codes(stream_, codes_of(op.from), codes_of(op.to)));
}

void CudaBackend::gemm_fp8(const GemmFp8& op) {
    const TensorView& added = op.added();
    require_compute({&op.c, &added});
    LORATRAIN_CHECK(compute_ == DType::bf16, "fp8 products are in bf16");
    LORATRAIN_CHECK(op.a.rows == op.c.rows && op.b.rows == op.c.cols && op.a.cols == op.b.cols,
                    "gemm_fp8 of [", op.a.rows, ", ", op.a.cols, "] and [", op.b.rows, ", ",
                    op.b.cols, "] into [", op.c.rows, ", ", op.c.cols, "]");
    LORATRAIN_CHECK(added.rows == op.c.rows && added.cols == op.c.cols, "gemm_fp8 into [",
                    op.c.rows, ", ", op.c.cols, "] that adds [", added.rows, ", ", added.cols, "]");
    if (op.c.rows == 0 || op.c.cols == 0) return;
    gemm_->run(op);
}

}  // namespace loratrain
