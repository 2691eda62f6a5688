#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace loratrain {

/// Sizes that cuDNN's attention graphs are built for (backend/cuda/attention_cudnn.cpp) and their
/// workspace is planned for (plan/memory/engine_memory.h): each up to the next of 4, 5, 6, 7 times
/// a power of two, so that few graphs serve all microbatches.
struct AttentionShape {
    std::int64_t samples = 0;
    std::int64_t length = 0;  ///< of the longest sample, at least 128
    std::int64_t tokens = 0;  ///< at least `length`
};

/// cuDNN's graphs are used where samples are typically longer than this, measured on an H200:
/// below, its padded tiles and extra passes cost more than its faster products save. The typical
/// length is the mean over tokens of the length of their sample.
inline constexpr double cudnn_forward_length = 100.0;
inline constexpr double cudnn_backward_length = 400.0;

/// Head dimensions that cuDNN's attention is used for.
constexpr bool cudnn_takes(std::int64_t head_dim) {
    return head_dim % 8 == 0 && head_dim <= 128;
}

inline AttentionShape attention_shape(std::int64_t samples, std::int64_t longest,
                                      std::int64_t tokens) {
    constexpr std::int64_t shortest_length = 128;
    const auto rounded_up = [](std::int64_t value) {
        if (value <= 4) return value;
        const auto bits = std::bit_width(static_cast<std::uint64_t>(value - 1));
        const std::int64_t step = std::int64_t{1} << (bits - 3);
        return (value + step - 1) / step * step;
    };
    const std::int64_t length = rounded_up(std::max(longest, shortest_length));
    return {rounded_up(samples), length, rounded_up(std::max(tokens, length))};
}

}  // namespace loratrain
