#include "backend/cuda/cublaslt_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace loratrain {

namespace {

#define LORATRAIN_TEXT_OF(value) #value
#define LORATRAIN_TEXT(value) LORATRAIN_TEXT_OF(value)
constexpr const char* name = "libcublasLt.so." LORATRAIN_TEXT(CUBLAS_VER_MAJOR);
#undef LORATRAIN_TEXT
#undef LORATRAIN_TEXT_OF

[[noreturn]] void refuse(const std::string& what) {
    throw InputError(
        "run.backend", cat("'cuda' needs ", name, ": ", what),
        "add the folder of CUDA's libraries to LD_LIBRARY_PATH, or use run.backend: cpu");
}

/// Stays open: what it allocates on a GPU lives as long as the process.
void* open_library() {
    if (void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    const std::string why = ::dlerror();
    if (void* library = ::dlopen(LORATRAIN_CUBLASLT_FILE, RTLD_NOW | RTLD_LOCAL)) return library;
    refuse(why);
}

template <class Function>
void find(void* library, const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    if (function == nullptr) refuse(cat("the library has no ", symbol));
}

CublasLt load() {
    void* library = open_library();
    CublasLt found{};
    find(library, "cublasLtCreate", found.Create);
    find(library, "cublasLtDestroy", found.Destroy);
    find(library, "cublasLtGetVersion", found.GetVersion);
    find(library, "cublasLtMatmul", found.Matmul);
    find(library, "cublasLtMatmulAlgoCheck", found.MatmulAlgoCheck);
    find(library, "cublasLtMatmulAlgoGetHeuristic", found.MatmulAlgoGetHeuristic);
    find(library, "cublasLtMatmulDescCreate", found.MatmulDescCreate);
    find(library, "cublasLtMatmulDescDestroy", found.MatmulDescDestroy);
    find(library, "cublasLtMatmulDescSetAttribute", found.MatmulDescSetAttribute);
    find(library, "cublasLtMatmulPreferenceCreate", found.MatmulPreferenceCreate);
    find(library, "cublasLtMatmulPreferenceDestroy", found.MatmulPreferenceDestroy);
    find(library, "cublasLtMatmulPreferenceSetAttribute", found.MatmulPreferenceSetAttribute);
    find(library, "cublasLtMatrixLayoutCreate", found.MatrixLayoutCreate);
    find(library, "cublasLtMatrixLayoutDestroy", found.MatrixLayoutDestroy);
    return found;
}

}  // namespace

const CublasLt& cublas_lt() {
    static const CublasLt functions = load();
    return functions;
}

std::string cublas_lt_text(std::size_t version) {
    return cat("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace loratrain
