#pragma once

#include <map>
#include <string>

#include "base/error.h"

namespace loratrain {

/// Which key of a job names a path, for problems of what lies there.

/// Paths as a job resolves them, and where it names them: "tune.yaml:3: model.weights", or "--set
/// model.weights". Of keys with equal paths it has the first.
using GivenPaths = std::map<std::string, std::string>;

/// The same problems. Those of a given file or folder, and of files in such a folder, have in front
/// where it is named; problems of a line of a file have the file and the line alone.
Problems with_keys(const Problems& problems, const GivenPaths& paths);

}  // namespace loratrain
