#pragma once

#include <string>
#include <vector>

namespace loratrain {

/// "0.2.0".
std::string version_text();
/// Commit the program was built from, "+" appended when the tree had changes.
std::string git_hash();
/// Compiler, build type and options, for `--version` and provenance.json.
std::string build_text();
/// The GPUs that the program was built for, as CMake was given them: "90", "80;90".
std::string cuda_architectures();

/// A library that the program uses: "HDF5", "1.10.8".
struct Library {
    std::string name;
    std::string version;
};
/// Those that cannot be asked at run time, as the build found them.
std::vector<Library> libraries_of_the_build();

}  // namespace loratrain
