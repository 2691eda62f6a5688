#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/version.h"

namespace loratrain {

struct BackendOptions {
    int threads = 1;             ///< OpenMP threads of this rank (CPU backend)
    int local_rank = 0;          ///< rank on this node, chooses the GPU (CUDA backend)
    DType compute = DType::f32;  ///< CUDA backend: bf16, or fp32 without TF32; the CPU's is fp32
    /// CUDA backend: where the choices of GEMM algorithms are kept (gemm_cublaslt.h); "" = nowhere.
    std::string algorithm_file = {};
};

/// `kind`: "cpu" or "cuda". A backend that was not built or has no GPU says so (InputError), as one
/// whose GPU cannot be used now (Error).
std::unique_ptr<Backend> make_backend(const std::string& kind, const BackendOptions& options);

/// The libraries that compute, as loaded, and where built with CUDA its versions and the driver's.
std::vector<Library> backend_libraries();

}  // namespace loratrain
