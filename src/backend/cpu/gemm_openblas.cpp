#ifdef LORATRAIN_GEMM_OPENBLAS

#include <cblas.h>

#include "backend/cpu/gemm.h"
#include "base/text.h"

namespace loratrain {

/// Names the kernels too: processors that are younger than the library fall back to very slow ones,
/// then OPENBLAS_CORETYPE=SkylakeX (or Zen, Haswell, ...) must be set in the environment.
std::string gemm_library() {
    return cat("OpenBLAS (", openblas_get_corename(), " kernels)");
}

void prepare_gemm_library() {
    openblas_set_num_threads(1);
}

void detail::library_sgemm(const GemmShape& shape, float alpha, const GemmOperand& a,
                           const GemmOperand& b, float beta, float* c, std::int64_t ldc) {
    cblas_sgemm(CblasRowMajor, a.transpose ? CblasTrans : CblasNoTrans,
                b.transpose ? CblasTrans : CblasNoTrans, static_cast<blasint>(shape.m),
                static_cast<blasint>(shape.n), static_cast<blasint>(shape.k), alpha, a.data,
                static_cast<blasint>(a.ld), b.data, static_cast<blasint>(b.ld), beta, c,
                static_cast<blasint>(ldc));
}

}  // namespace loratrain

#endif
