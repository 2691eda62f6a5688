#pragma once

#include <cstdint>

namespace loratrain {

/// One row of a LoRA input under dropout; the counter of base/rng.h dropout_bits without columns.
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

/// target[j] += drop(source)[j].
void add_dropped_row(const DropoutRow& row, std::int64_t first, std::int64_t count,
                     const float* source, float* target);

/// target[j] += amplitude u of column j (AddNoise); `row` without its threshold.
void add_noise_row(const DropoutRow& row, std::int64_t count, float amplitude, float* target);

}  // namespace loratrain
