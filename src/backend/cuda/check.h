#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "base/error.h"

namespace loratrain {

/// Failures of CUDA and cuBLAS calls as Errors.

/// The status's name: "CUBLAS_STATUS_NOT_SUPPORTED".
const char* cublas_name(cublasStatus_t status);

[[noreturn]] void fail_cuda(cudaError_t status, const char* expression, const char* file, int line);
[[noreturn]] void fail_cublas(cublasStatus_t status, const char* expression, const char* file,
                              int line);

}  // namespace loratrain

/// Throw Error naming the expression and the name of the status if a call fails.
#define CUDA_CHECK(expression)                                                    \
    do {                                                                          \
        const cudaError_t cuda_status = (expression);                             \
        if (cuda_status != cudaSuccess) {                                         \
            ::loratrain::fail_cuda(cuda_status, #expression, __FILE__, __LINE__); \
        }                                                                         \
    } while (false)

#define CUBLAS_CHECK(expression)                                                      \
    do {                                                                              \
        const cublasStatus_t cublas_status = (expression);                            \
        if (cublas_status != CUBLAS_STATUS_SUCCESS) {                                 \
            ::loratrain::fail_cublas(cublas_status, #expression, __FILE__, __LINE__); \
        }                                                                             \
    } while (false)
