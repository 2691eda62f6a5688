#include "backend/make_backend.h"

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace loratrain {

std::unique_ptr<Backend> make_backend(const std::string& kind, const BackendOptions& options) {
    if (kind == "cpu") return std::make_unique<CpuBackend>(options.threads);
    if (kind == "cuda") {
        throw InputError("run.backend", "'cuda' asked for, but this program was built without CUDA",
                         "use run.backend: cpu");
    }
    throw InputError("run.backend", cat("unknown backend '", kind, "'"), "must be cpu or cuda");
}

}  // namespace loratrain
