#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace loratrain {

/// The lengths of a test's samples, or with LORATRAIN_TEST_QUICK set (for tools that make kernels a
/// thousand times slower) at most 10 samples of at most 100 tokens.
inline std::vector<std::int32_t> quick_lengths(std::vector<std::int32_t> lengths) {
    if (std::getenv("LORATRAIN_TEST_QUICK") == nullptr) return lengths;
    constexpr std::size_t most_samples = 10;
    constexpr std::int32_t most_tokens = 100;
    lengths.resize(std::min(lengths.size(), most_samples));
    for (std::int32_t& length : lengths) length = std::min(length, most_tokens);
    return lengths;
}

}  // namespace loratrain
