#include "base/random_matrix.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/rng.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

constexpr std::int64_t counters = std::tuple_size_v<PhiloxWords::value_type>;
constexpr std::int64_t counter_cols = 8;
constexpr std::int64_t block_cols = counters * counter_cols;

/// Columns block * block_cols and on of a row.
LORATRAIN_VECTOR_CODE
std::array<float, block_cols> random_block(const RandomMatrix& random, std::int64_t row,
                                           std::int64_t block) {
    const PhiloxWords words = philox4x32_words(
        {static_cast<std::uint32_t>(block * counters), static_cast<std::uint32_t>(row),
         static_cast<std::uint32_t>(row >> 32), 0},
        random.key);
    std::array<float, block_cols> values{};
    for (std::size_t c = 0; c < counter_cols; ++c) {
        for (std::size_t i = 0; i < counters; ++i) {
            const std::uint32_t bits = (words[c / 2][i] >> (16U * (c % 2))) & 0xffffU;
            const float unit =
                (static_cast<float>(static_cast<std::int32_t>(bits)) + 0.5F) / 32768.0F - 1.0F;
            values[i * counter_cols + c] = std::fma(random.half_width, unit, random.center);
        }
    }
    return values;
}

}  // namespace

LORATRAIN_VECTOR_CODE
void fill_random_rows(const RandomMatrix& random, std::int64_t first_row,
                      const TensorView& target) {
    for (std::int64_t row = 0; row < target.rows; ++row) {
        for (std::int64_t first = 0; first < target.cols; first += block_cols) {
            const auto values = random_block(random, first_row + row, first / block_cols);
            const std::int64_t count = std::min(block_cols, target.cols - first);
            void* place = target.offset(row, first);
            if (target.dtype == DType::f32) {
                std::copy_n(values.begin(), count, static_cast<float*>(place));
            } else {
                std::transform(values.begin(), values.begin() + count,
                               static_cast<BFloat16*>(place), to_bfloat16);
            }
        }
    }
}

}  // namespace loratrain
