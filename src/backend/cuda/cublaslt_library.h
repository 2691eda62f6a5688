#pragma once

#include <cublasLt.h>

#include <string>

namespace loratrain {

/// The functions of cuBLASLt, from the library that the first call loads.
///
/// The program does not link the library: the dynamic linker would write 200 MB of addresses (0.17
/// s of processor time) in every process, of which those that train on CPUs, plan or convert need
/// none.

/// Each member is cuBLASLt's function of that name: cublas_lt().Matmul is cublasLtMatmul.
struct CublasLt {
    decltype(&cublasLtCreate) Create;
    decltype(&cublasLtDestroy) Destroy;
    decltype(&cublasLtGetVersion) GetVersion;
    decltype(&cublasLtMatmul) Matmul;
    decltype(&cublasLtMatmulAlgoCheck) MatmulAlgoCheck;
    decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
    decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
    decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
    decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
    decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
    decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
    decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
    decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
};

/// Searches where the dynamic linker would (LD_LIBRARY_PATH, the program's run path, the system's
/// folders), then where the build found the library. Throws InputError if there is none, or one
/// that lacks a function.
const CublasLt& cublas_lt();

/// "cuBLASLt 13.0.2" of a version's number.
std::string cublas_lt_text(std::size_t version);

}  // namespace loratrain
