#pragma once

#include <cstdint>

namespace loratrain {

/// Every tensor starts at a multiple of it, in bytes: the finest alignment that GEMM libraries tell
/// apart, so that an op gets the same algorithm wherever its tensors lie.
inline constexpr std::uint64_t tensor_alignment = 256;

/// Rounds up to tensor_alignment.
constexpr std::uint64_t aligned(std::uint64_t bytes) {
    return (bytes + tensor_alignment - 1) / tensor_alignment * tensor_alignment;
}

}  // namespace loratrain
