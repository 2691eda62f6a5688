#pragma once

#include <vector>

#include "base/version.h"

namespace loratrain {

/// Every library that this program uses, for `--version` and provenance.json.
std::vector<Library> all_libraries();

}  // namespace loratrain
