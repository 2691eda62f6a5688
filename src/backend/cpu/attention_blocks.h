#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/vector_math.h"

namespace loratrain {

/// Blocks of attention's scores, and the keys that a query sees.

/// Scores are made in blocks of attention_query_block queries by attention_key_block keys.
constexpr std::int64_t attention_query_block = 64;
constexpr std::int64_t attention_key_block = 256;
/// Row stride of a block of scores; not a power of two, so that its columns use all cache sets.
constexpr std::int64_t attention_score_ld = attention_key_block + 16;
constexpr std::int64_t attention_score_floats = attention_query_block * attention_score_ld;

/// Query heads per key-value head. Throws Error if shapes do not fit.
std::int64_t attention_group(const Attention& op);

inline float* head_rows(const TensorView& x, std::int64_t row, std::int64_t head,
                        std::int64_t head_dim) {
    return x.f32() + row * x.ld + head * head_dim;
}

/// Keys [begin, end) of a block, counted from the block's first key.
struct KeyRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t count() const { return end - begin; }
};

/// Scores s become c tanh(s / c), c = cap.
inline void cap_scores(float* scores, const KeyRange& visible, float cap) {
    const float inverse = 1.0F / cap;
#pragma omp simd
    for (std::int64_t j = visible.begin; j < visible.end; ++j) {
        scores[j] = cap * tanh_inline(scores[j] * inverse);
    }
}

/// The keys in [begin, begin + keys) that the query at `position` sees.
inline KeyRange visible_keys(std::int64_t position, std::int64_t sliding_window, std::int64_t begin,
                             std::int64_t keys) {
    const std::int64_t first = sliding_window > 0 ? position + 1 - sliding_window - begin : 0;
    return {std::clamp<std::int64_t>(first, 0, keys),
            std::clamp<std::int64_t>(position + 1 - begin, 0, keys)};
}

/// First key of the first block that any query from `position` on sees.
inline std::int64_t first_key(std::int64_t position, std::int64_t sliding_window) {
    if (sliding_window == 0 || position < sliding_window) return 0;
    return (position + 1 - sliding_window) / attention_key_block * attention_key_block;
}

}  // namespace loratrain
