#include "backend/make_backend.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "base/error.h"

#ifdef LORATRAIN_WITH_CUDA
#include <cuda_runtime_api.h>

#include <fstream>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/gemm_cublaslt.h"
#endif

namespace loratrain {

namespace {

#ifdef LORATRAIN_WITH_CUDA
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
    const int count = cuda_device_count();
    if (count == 0) {
        throw InputError("run.backend", "'cuda' asked for, but no CUDA GPU is visible here",
                         "use run.backend: cpu, or check nvidia-smi and CUDA_VISIBLE_DEVICES");
    }
    return std::make_unique<CudaBackend>(options.local_rank % count, options.compute,
                                         options.algorithm_file);
}

/// 12090 -> "12.9".
std::string cuda_version(int number) {
    return number > 0 ? cat(number / 1000, ".", number / 10 % 100) : "none";
}

/// First line of what the kernel module says; "none" without one.
std::string driver_text() {
    std::ifstream file("/proc/driver/nvidia/version");
    std::string line;
    std::getline(file, line);
    return line.empty() ? "none" : line;
}

std::vector<Library> cuda_libraries() {
    int runtime = 0;
    int driver = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    return {{"CUDA runtime", cuda_version(runtime)},
            {"CUDA of the driver", cuda_version(driver)},
            {"NVIDIA driver", driver_text()},
            {"GPU GEMM", GemmCublasLt::library()}};
}
#else
std::vector<Library> cuda_libraries() {
    return {};
}

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions&) {
    throw InputError("run.backend", "'cuda' asked for, but this program was built without CUDA",
                     "use run.backend: cpu");
}
#endif

}  // namespace

std::vector<Library> backend_libraries() {
    std::vector<Library> libraries{{"CPU GEMM", gemm_library()}};
    for (const Library& library : cuda_libraries()) libraries.push_back(library);
    return libraries;
}

std::unique_ptr<Backend> make_backend(const std::string& kind, const BackendOptions& options) {
    if (kind == "cpu") return std::make_unique<CpuBackend>(options.threads);
    if (kind == "cuda") return make_cuda_backend(options);
    throw InputError("run.backend", cat("unknown backend '", kind, "'"), "must be cpu or cuda");
}

}  // namespace loratrain
