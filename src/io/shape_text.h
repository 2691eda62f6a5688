#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"

namespace loratrain {

/// "[3, 5]".
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::vector<std::string> words;
    words.reserve(shape.size());
    for (const std::int64_t extent : shape) words.push_back(std::to_string(extent));
    return cat("[", join(words, ", "), "]");
}

}  // namespace loratrain
