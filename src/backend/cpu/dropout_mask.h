#pragma once

#include <cstdint>

namespace loratrain {

/// Dropout and noise on rows, by the counters of base/rng.h.

/// Dropout of one row of a LoRA input: the arguments of dropout_bits() other than columns, and the
/// threshold.
struct DropoutRow {
    std::uint64_t key = 0;
    std::uint32_t step = 0;
    std::uint32_t sample = 0;
    std::uint32_t position = 0;
    std::uint32_t threshold = 0;
};

/// target[j] = drop(source)[j] for the columns first + j, j in [0, count); first % 8 == 0.
void drop_row(const DropoutRow& row, std::int64_t first, std::int64_t count, const float* source,
              float* target);

/// target[j] += drop(source)[j], likewise.
void add_dropped_row(const DropoutRow& row, std::int64_t first, std::int64_t count,
                     const float* source, float* target);

/// target[j] += amplitude u of column j (AddNoise); row.threshold is not used.
void add_noise_row(const DropoutRow& row, std::int64_t count, float amplitude, float* target);

}  // namespace loratrain
