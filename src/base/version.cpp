#include "base/version.h"

#include "version_values.h"

namespace loratrain {

std::string version_text() {
    return LORATRAIN_VERSION_TEXT;
}

std::string git_hash() {
    return LORATRAIN_GIT_HASH_TEXT;
}

std::string build_text() {
    return std::string(LORATRAIN_COMPILER_TEXT) + ", " + LORATRAIN_BUILD_TYPE_TEXT + ", CPU GEMM " +
           LORATRAIN_CPU_GEMM_TEXT;
}

}  // namespace loratrain
