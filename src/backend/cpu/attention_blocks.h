#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/backend.h"

namespace loratrain {

/// Scores are made in blocks of this many query rows by this many keys.
constexpr std::int64_t attention_query_block = 64;
constexpr std::int64_t attention_key_block = 256;
/// Row stride of a block of scores: not a power of two, or its columns share few cache sets.
constexpr std::int64_t attention_score_ld = attention_key_block + 16;
constexpr std::int64_t attention_score_floats = attention_query_block * attention_score_ld;

/// Query heads per key-value head; checks the shapes.
std::int64_t attention_group(const Attention& op);

inline float* head_rows(const TensorView& x, std::int64_t row, std::int64_t head,
                        std::int64_t head_dim) {
    return x.f32() + row * x.ld + head * head_dim;
}

/// How many of the keys [begin, begin + keys) the query at `position` sees.
inline std::int64_t visible_keys(std::int64_t position, std::int64_t begin, std::int64_t keys) {
    return std::clamp<std::int64_t>(position + 1 - begin, 0, keys);
}

}  // namespace loratrain
