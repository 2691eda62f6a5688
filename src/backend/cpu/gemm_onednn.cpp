#ifdef LORATRAIN_GEMM_ONEDNN

#include <oneapi/dnnl/dnnl.h>

#include "backend/cpu/gemm.h"
#include "base/error.h"
#include "base/text.h"

namespace loratrain {

std::string gemm_library() {
    const dnnl_version_t* version = dnnl_version();
    return cat("oneDNN ", version->major, ".", version->minor, ".", version->patch);
}

void prepare_gemm_library() {}

void detail::library_sgemm(const GemmShape& shape, float alpha, const GemmOperand& a,
                           const GemmOperand& b, float beta, float* c, std::int64_t ldc) {
    const dnnl_status_t status =
        dnnl_sgemm(a.transpose ? 'T' : 'N', b.transpose ? 'T' : 'N', shape.m, shape.n, shape.k,
                   alpha, a.data, a.ld, b.data, b.ld, beta, c, ldc);
    if (status != dnnl_success) {
        throw Error(cat("oneDNN sgemm failed with status ", static_cast<int>(status),
                        " for m=", shape.m, " n=", shape.n, " k=", shape.k));
    }
}

}  // namespace loratrain

#endif
