#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/version.h"

namespace loratrain {

/// Choice of a backend by name.

struct BackendOptions {
    int threads = 1;             ///< OpenMP threads of this rank (CPU backend)
    int local_rank = 0;          ///< rank on this host, chooses the GPU (CUDA backend)
    DType compute = DType::f32;  ///< CUDA backend: bf16, or fp32 without TF32; CPU backend: fp32
    /// CUDA backend: file for the choices of GEMM algorithms (gemm_cublaslt.h); "" = no file.
    std::string algorithm_file = {};
};

/// `kind`: "cpu" or "cuda". Throws InputError if the program was built without that backend or
/// there is no GPU, Error if the GPU cannot be used now.
std::unique_ptr<Backend> make_backend(const std::string& kind, const BackendOptions& options);

/// Libraries of the backends, as loaded; in a build with CUDA also its runtime and the driver.
std::vector<Library> backend_libraries();

}  // namespace loratrain
