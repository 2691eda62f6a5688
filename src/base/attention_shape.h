#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/alignment.h"

namespace loratrain {

/// Sizes that cuDNN's attention graphs are built for (backend/cuda/attention_cudnn.cpp), so that
/// few serve all microbatches: samples and tokens up to powers of two, the length up to these and
/// three halves of them. A graph takes 43 ms to build on an H200's host, and real samples, whose
/// longest hardly repeats, met one in every few microbatches.
struct AttentionShape {
    std::int64_t samples = 0;
    std::int64_t length = 0;  ///< of the longest sample, at least 128
    std::int64_t tokens = 0;  ///< at least `length`
};

/// cuDNN's graphs are used where samples are typically longer than this, measured on an H200:
/// below, its padded tiles cost more than its faster products save, which are fewer of narrow
/// heads. The typical length is the mean over tokens of the length of their sample.
constexpr double cudnn_length(std::int64_t head_dim) {
    return head_dim <= 64 ? 1000.0 : 100.0;
}

/// Head dimensions that cuDNN's attention is used for.
constexpr bool cudnn_takes(std::int64_t head_dim) {
    return head_dim % 8 == 0 && head_dim <= 128;
}

/// Heads whose gradients of scores are kept for dQ. Of narrower ones to compute them twice takes
/// less time than to write and read them, measured on an H200.
constexpr bool keeps_attention_scores(std::int64_t head_dim) {
    return head_dim > 64;
}

/// Pairs of a tile of 64 queries and one of 64 keys before them, whose gradients of scores
/// attention's backward keeps (kernels/hopper): of a sample.
constexpr std::int64_t attention_score_pairs(std::int64_t length) {
    const std::int64_t tiles = ceil_div(length, 64);
    return tiles * (tiles + 1) / 2;
}

namespace attention_shapes {

inline constexpr std::int64_t shortest_length = 128;

/// Up to the next of so many steps to each power of two.
inline std::int64_t rounded_up(std::int64_t value, std::int64_t steps) {
    if (value <= steps) return value;
    const auto below = std::bit_floor(static_cast<std::uint64_t>(value - 1));
    const std::int64_t step = static_cast<std::int64_t>(below) / steps;
    return round_up(value, step);
}

}  // namespace attention_shapes

inline AttentionShape attention_shape(std::int64_t samples, std::int64_t longest,
                                      std::int64_t tokens) {
    using namespace attention_shapes;
    const std::int64_t length = rounded_up(std::max(longest, shortest_length), 2);
    return {rounded_up(samples, 1), length, rounded_up(std::max(tokens, length), 1)};
}

}  // namespace loratrain
