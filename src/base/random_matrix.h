#pragma once

#include <cstdint>

#include "base/tensor_view.h"

namespace loratrain {

/// A matrix of uniform random numbers in center ± half_width, a function of these three alone:
///   x[i, j] = fma(half_width, (bits + 0.5) / 32768 - 1, center), then rounded to the type stored;
/// bits: the 16 bits of column j % 8 in philox4x32({j / 8, i mod 2^32, i / 2^32, 0}, key), laid out
/// as in dropout_bits (base/rng.h). The same on every processor, CPU or GPU.
struct RandomMatrix {
    std::uint64_t key = 0;
    float center = 0.0F;
    float half_width = 0.0F;
};

/// Fills `target` (host memory, f32 or bf16, any ld) with rows first_row, first_row + 1, ... .
void fill_random_rows(const RandomMatrix& random, std::int64_t first_row, const TensorView& target);

}  // namespace loratrain
