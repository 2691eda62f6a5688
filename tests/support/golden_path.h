#pragma once

#include <string>

#include "test_paths.h"

namespace loratrain::test {

/// The folder of a golden family, or something in it ("llama/base").
inline std::string golden_path(const std::string& family) {
    return std::string(LORATRAIN_TEST_DATA) + "/golden/" + family;
}

}  // namespace loratrain::test
