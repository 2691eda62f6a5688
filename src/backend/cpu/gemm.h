#pragma once

#include <cstdint>
#include <string>

namespace loratrain {

/// Matrix products in fp32, by the GEMM library of the build.

/// op(X) of a row-major fp32 matrix X with row stride `ld`.
struct GemmOperand {
    const float* data = nullptr;
    std::int64_t ld = 0;
    bool transpose = false;
};

struct GemmShape {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
};

/// C = alpha op(A) op(B) + beta C, on the calling thread; beta = 0 overwrites NaN too. Empty shapes
/// are legal.
void sgemm(const GemmShape& shape, float alpha, const GemmOperand& a, const GemmOperand& b,
           float beta, float* c, std::int64_t ldc);

/// "oneDNN 2.6.3".
std::string gemm_library();

/// Sets up the library; once per backend, before the first sgemm().
void prepare_gemm_library();

namespace detail {

/// sgemm() of a library; all dimensions >= 1.
void library_sgemm(const GemmShape& shape, float alpha, const GemmOperand& a, const GemmOperand& b,
                   float beta, float* c, std::int64_t ldc);

}  // namespace detail
}  // namespace loratrain
