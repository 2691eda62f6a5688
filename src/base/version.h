#pragma once

#include <string>

namespace loratrain {

/// "0.1.0".
std::string version_text();
/// Commit the program was built from, "+" appended when the tree had changes.
std::string git_hash();
/// Compiler, build type and CPU GEMM library, for `--version` and provenance.json.
std::string build_text();

}  // namespace loratrain
