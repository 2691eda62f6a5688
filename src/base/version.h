#pragma once

#include <string>
#include <vector>

namespace loratrain {

/// Version of the program and of what it was built with.

/// "0.2.0".
std::string version_text();
/// Commit from which the program was built; "+" is appended if the tree had changes.
std::string git_hash();
/// Compiler, build type and options, for `--version` and provenance.json.
std::string build_text();
/// GPU architectures for which the program was built, as given to CMake: "90", "80;90".
std::string cuda_architectures();

/// A library that the program uses: {"HDF5", "1.10.8"}.
struct Library {
    std::string name;
    std::string version;
};
/// Libraries that cannot be asked for their version at run time, with the version that the build
/// found.
std::vector<Library> libraries_of_the_build();

}  // namespace loratrain
