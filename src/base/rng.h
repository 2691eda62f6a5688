#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/tensor.h"

namespace loratrain {

/// Random numbers by counters: a number depends on its key and counter alone. So results do not
/// depend on ranks, microbatches, other adapters or the order of evaluation, and are the same on
/// CPUs and GPUs.

/// Philox4x32 (Salmon et al., SC11). Its authors find 7 rounds to be the smallest number that
/// passes BigCrush.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::uint64_t key,
                                        int rounds = 10);

/// philox4x32 of the 16 counters {counter[0] + i, counter[1], counter[2], counter[3]}:
/// result[w][i] is word w of counter i.
using PhiloxWords = std::array<std::array<std::uint32_t, 16>, 4>;
PhiloxWords philox4x32_words(const std::array<std::uint32_t, 4>& counter, std::uint64_t key,
                             int rounds = 10);

/// 64-bit FNV-1a of a name; the same on all machines.
std::uint64_t hash_name(std::string_view name);

/// Mixes two words into one key (SplitMix64 finaliser between words).
std::uint64_t mix_key(std::uint64_t a, std::uint64_t b);

/// Key of one tensor of one adapter.
inline std::uint64_t tensor_key(std::uint64_t seed, std::string_view adapter,
                                std::string_view tensor) {
    return mix_key(mix_key(seed, hash_name(adapter)), hash_name(tensor));
}

/// Element `i` of the stream of `key`: uniform in [0, 1), 24 bits.
float uniform_float(std::uint64_t key, std::uint64_t i);
/// values[i] = uniform_float(key, first + i), in vector code.
void uniform_floats(std::uint64_t key, std::uint64_t first, std::span<float> values);

/// Element `i` of the stream of `key`: N(0, 1) (Box and Muller, 1958).
float normal_float(std::uint64_t key, std::uint64_t i);
/// values[i] = normal_float(key, first + i); the uniform numbers are made in vector code.
void normal_floats(std::uint64_t key, std::uint64_t first, std::span<float> values);

/// Element `i` of the stream of `key`: a uniform integer in [0, bound). bound >= 1.
std::uint64_t uniform_int(std::uint64_t key, std::uint64_t i, std::uint64_t bound);

/// Dropout of the LoRA input. A probability is kept in steps of 1 / 32768: an element is dropped if
/// its 15 random bits are < dropout_threshold(p); elements that are kept are multiplied by
/// dropout_scale(threshold). At most largest_dropout, GPUs can compare two elements' bits at once
/// as fp16 numbers.
inline constexpr double largest_dropout = 0.96875;
inline constexpr int dropout_rounds = 7;
inline std::uint32_t dropout_threshold(double p) {
    return static_cast<std::uint32_t>(std::lround(p * 32768.0));
}
inline float dropout_scale(std::uint32_t threshold) {
    return 32768.0F / static_cast<float>(32768U - threshold);
}
/// Random bits, 15 for each of the columns 8c ... 8c+7 (c = `column_block`), at token `position` of
/// sample `sample` in optimizer step `step`. Word w holds column 8c+2w in its low half and column
/// 8c+2w+1 in its high half.
inline std::array<std::uint32_t, 4> dropout_bits(std::uint64_t key, std::uint32_t step,
                                                 std::uint32_t sample, std::uint32_t position,
                                                 std::uint32_t column_block) {
    auto words = philox4x32({column_block, position, sample, step}, key, dropout_rounds);
    for (std::uint32_t& word : words) word &= 0x7fff7fffU;
    return words;
}

/// Noise in (-1, 1) that 15 random bits stand for: the middle of one of 32768 equal parts.
inline float noise_unit(std::uint32_t bits) {
    return (static_cast<float>(bits) + 0.5F) / 16384.0F - 1.0F;
}

/// A matrix of uniform random numbers in center ± half_width, a function of the three fields alone:
///   x[i, j] = fma(half_width, (bits + 0.5) / 32768 - 1, center), rounded to the type stored
/// where bits are the 16 bits of column j % 8 in philox4x32({j / 8, i mod 2^32, i / 2^32, 0}, key),
/// laid out as in dropout_bits().
struct RandomMatrix {
    std::uint64_t key = 0;
    float center = 0.0F;
    float half_width = 0.0F;
};

/// Fills `target` (host memory, any dtype and ld) with rows first_row, first_row + 1, ... .
void fill_random_rows(const RandomMatrix& random, std::int64_t first_row, const TensorView& target);

}  // namespace loratrain
