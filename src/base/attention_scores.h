#pragma once

#include <cstdint>

#include "base/alignment.h"

namespace loratrain {

/// Heads whose gradients of scores are kept for dQ, of those that warpgroups take. Of narrower ones
/// to compute them twice takes less time than to write and read them, measured on an H200.
constexpr bool keeps_attention_scores(std::int64_t head_dim) {
    return head_dim > 64 && head_dim <= 128 && head_dim % 8 == 0;
}

/// Pairs of a tile of 64 queries and one of 64 keys before them, whose gradients of scores
/// attention's backward keeps (kernels/hopper): of a sample.
constexpr std::int64_t attention_score_pairs(std::int64_t length) {
    const std::int64_t tiles = ceil_div(length, 64);
    return tiles * (tiles + 1) / 2;
}

}  // namespace loratrain
