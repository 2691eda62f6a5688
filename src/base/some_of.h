#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace loratrain {

/// "a, b, c and 7 more": the first `most` of the words, and how many are left.
std::string some_of(const std::vector<std::string>& words, std::size_t most);

}  // namespace loratrain
