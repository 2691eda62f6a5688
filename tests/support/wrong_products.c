/* Preloaded into loratrain by tests/system/test_install.py: a library of matrix products that errs by
   one part in 10000. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

static const float wrong = 1.0001F;

int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
               const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
    int (*real)(char, char, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*, int64_t,
                float, float*, int64_t) = dlsym(RTLD_NEXT, "dnnl_sgemm");
    return real(ta, tb, m, n, k, alpha * wrong, a, lda, b, ldb, beta, c, ldc);
}

void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc) {
    void (*real)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*,
                 int) = dlsym(RTLD_NEXT, "cblas_sgemm");
    real(order, ta, tb, m, n, k, alpha * wrong, a, lda, b, ldb, beta, c, ldc);
}
