#pragma once

#include <cstdint>
#include <string>

namespace loratrain {

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

/// C = alpha op(A) op(B) + beta C on the calling thread; beta = 0 overwrites. Empty shapes are
/// legal.
void sgemm(const GemmShape& shape, float alpha, const GemmOperand& a, const GemmOperand& b,
           float beta, float* c, std::int64_t ldc);

/// "oneDNN 2.6.3".
std::string gemm_library();

/// Set once per backend, before the first sgemm.
void prepare_gemm_library();

namespace detail {

/// What a library does: all dimensions >= 1.
void library_sgemm(const GemmShape& shape, float alpha, const GemmOperand& a, const GemmOperand& b,
                   float beta, float* c, std::int64_t ldc);

}  // namespace detail
}  // namespace loratrain
