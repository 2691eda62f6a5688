#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"

namespace loratrain {

/// Product of the extents.
inline std::int64_t element_count(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
}

/// "[3, 5]".
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::vector<std::string> words;
    words.reserve(shape.size());
    for (const std::int64_t extent : shape) words.push_back(std::to_string(extent));
    return cat("[", join(words, ", "), "]");
}

}  // namespace loratrain
