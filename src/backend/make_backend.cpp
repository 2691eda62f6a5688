#include "backend/make_backend.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "backend/gpu_info.h"
#include "base/error.h"

#ifdef LORATRAIN_WITH_CUDA
#include "backend/cuda/cublaslt_library.h"
#include "backend/cuda/cuda_backend.h"
#endif

namespace loratrain {

namespace {

#ifdef LORATRAIN_WITH_CUDA
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
    const GpuInfo gpu = gpu_info(options.local_rank);
    require_no_failure(gpu, "this rank");
    if (gpu.visible == 0) {
        throw InputError("run.backend", "'cuda' needs a GPU, but no CUDA GPU is visible here",
                         "use run.backend: cpu, or check nvidia-smi and CUDA_VISIBLE_DEVICES");
    }
    return std::make_unique<CudaBackend>(options.local_rank % gpu.visible, options.compute,
                                         options.algorithm_file);
}
#else
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions&) {
    throw InputError("run.backend", "'cuda' is not available: this program was built without CUDA",
                     "use run.backend: cpu");
}
#endif

}  // namespace

std::vector<Library> backend_libraries() {
    std::vector<Library> libraries{{"CPU GEMM", gemm_library()}};
    for (const Library& library : gpu_libraries()) libraries.push_back(library);
#ifdef LORATRAIN_WITH_CUDA
    libraries.push_back({"GPU GEMM", cublas_lt_text(CUBLAS_VERSION)});
#endif
    return libraries;
}

std::unique_ptr<Backend> make_backend(const std::string& kind, const BackendOptions& options) {
    if (kind == "cpu") return std::make_unique<CpuBackend>(options.threads);
    if (kind == "cuda") return make_cuda_backend(options);
    throw InputError("run.backend", cat("unknown backend '", kind, "'"), "must be cpu or cuda");
}

}  // namespace loratrain
