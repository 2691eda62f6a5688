#pragma once

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "test_paths.h"

namespace loratrain::test {

/// The folder of a golden family, or something in it ("llama/base").
inline std::string golden_path(const std::string& family) {
    return std::string(LORATRAIN_TEST_DATA) + "/golden/" + family;
}

/// All golden families, sorted, but for `others`.
inline std::vector<std::string> golden_families(const std::set<std::string>& others) {
    std::vector<std::string> families;
    for (const auto& entry : std::filesystem::directory_iterator(golden_path(""))) {
        const std::string name = entry.path().filename().string();
        const bool is_family = std::filesystem::exists(entry.path() / "base") &&
                               std::filesystem::exists(entry.path() / "golden.json");
        if (is_family && !others.contains(name)) families.push_back(name);
    }
    std::sort(families.begin(), families.end());
    return families;
}

}  // namespace loratrain::test
