#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace loratrain {

using TextRow = std::vector<std::string>;

/// Lines of columns as wide as their widest cell, two blanks before each; the first `left` columns
/// flush left, the others right. All rows have as many cells as the first.
std::string text_table(const std::vector<TextRow>& rows, std::size_t left);

}  // namespace loratrain
