#pragma once

#include <concepts>
#include <cstdint>

namespace loratrain {

/// Every tensor starts at a multiple of it, in bytes: the finest alignment that GEMM libraries tell
/// apart, so that an op gets the same algorithm wherever its tensors lie.
inline constexpr std::uint64_t tensor_alignment = 256;

/// count / size rounded up. count >= 0, size > 0.
template <std::integral Count, std::integral Size>
constexpr auto ceil_div(Count count, Size size) {
    return (count + size - 1) / size;
}

/// To the next multiple of `size`; likewise.
template <std::integral Count, std::integral Size>
constexpr auto round_up(Count count, Size size) {
    return ceil_div(count, size) * size;
}

/// Rounds up to tensor_alignment.
constexpr std::uint64_t aligned(std::uint64_t bytes) {
    return round_up(bytes, tensor_alignment);
}

}  // namespace loratrain
