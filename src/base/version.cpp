#include "base/version.h"

#include <string_view>

#include "base/text.h"
#include "version_values.h"

namespace loratrain {

std::string version_text() {
    return LORATRAIN_VERSION_TEXT;
}

std::string git_hash() {
    return LORATRAIN_GIT_HASH_TEXT;
}

std::string build_text() {
    std::string text = cat(LORATRAIN_COMPILER_TEXT, ", ", LORATRAIN_BUILD_TYPE_TEXT, ", CPU GEMM ",
                           LORATRAIN_CPU_GEMM_TEXT, ", -march=native ", LORATRAIN_NATIVE_TEXT,
                           ", CUDA ", LORATRAIN_CUDA_TEXT);
    if (std::string_view(LORATRAIN_CUDA_TEXT) == "ON") {
        text += cat(" for ", cuda_architectures());
    }
    if (std::string_view(LORATRAIN_SANITIZE_TEXT).empty()) return text;
    return cat(text, ", sanitizers ", LORATRAIN_SANITIZE_TEXT);
}

std::string cuda_architectures() {
    return LORATRAIN_CUDA_ARCHITECTURES_TEXT;
}

std::vector<Library> libraries_of_the_build() {
    return {{"yaml-cpp", LORATRAIN_YAML_CPP_TEXT}, {"Boost", LORATRAIN_BOOST_TEXT}};
}

}  // namespace loratrain
