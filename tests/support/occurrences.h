#pragma once

#include <cstddef>
#include <string>

namespace loratrain::test {

/// How often `word` stands in `text`, overlaps counted.
inline std::size_t occurrences(const std::string& text, const std::string& word) {
    std::size_t found = 0;
    for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
    return found;
}

}  // namespace loratrain::test
