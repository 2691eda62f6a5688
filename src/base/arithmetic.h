#pragma once

#include <concepts>
#include <cstdint>

namespace loratrain {

/// Arithmetic with whole numbers: division rounded up, alignment, bisection.

/// Bytes of which every tensor's address is a multiple. GEMM libraries tell no finer alignment
/// apart, so an operator gets the same algorithm wherever its tensors lie.
inline constexpr std::uint64_t tensor_alignment = 256;

/// count / size rounded up. count >= 0, size > 0.
template <std::integral Count, std::integral Size>
constexpr auto ceil_div(Count count, Size size) {
    return (count + size - 1) / size;
}

/// The smallest multiple of `size` that is at least `count`. count >= 0, size > 0.
template <std::integral Count, std::integral Size>
constexpr auto round_up(Count count, Size size) {
    return ceil_div(count, size) * size;
}

/// `bytes` rounded up to tensor_alignment.
constexpr std::uint64_t aligned(std::uint64_t bytes) {
    return round_up(bytes, tensor_alignment);
}

/// The largest number in [low, high) for which `holds` is true, by bisection. `holds(low)` is taken
/// to be true; once `holds` is false it must stay false for larger numbers.
template <class Condition>
std::int64_t last_that_holds(std::int64_t low, std::int64_t high, const Condition& holds) {
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (holds(middle) ? low : high) = middle;
    }
    return low;
}

}  // namespace loratrain
