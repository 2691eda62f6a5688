#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

namespace loratrain {

/// Counter-based random numbers: a value depends on its key and counter alone, so results do not
/// depend on ranks, microbatches, co-trained adapters or the order of evaluation.

/// Philox4x32 (Salmon et al., SC11); 7 is the smallest number of rounds that passes BigCrush there.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::uint64_t key,
                                        int rounds = 10);

/// The same of counters {counter[0] + i, counter[1], counter[2], counter[3]} for i = 0 ... 15 at
/// once: result[w][i] is word w of the i-th.
using PhiloxWords = std::array<std::array<std::uint32_t, 16>, 4>;
PhiloxWords philox4x32_words(const std::array<std::uint32_t, 4>& counter, std::uint64_t key,
                             int rounds = 10);

/// 64-bit FNV-1a of a name; stable across machines.
std::uint64_t hash_name(std::string_view name);

/// Mixes the words into one key (SplitMix64 finaliser between words).
std::uint64_t mix_key(std::uint64_t a, std::uint64_t b);

/// Key of one tensor of one adapter.
inline std::uint64_t tensor_key(std::uint64_t seed, std::string_view adapter,
                                std::string_view tensor) {
    return mix_key(mix_key(seed, hash_name(adapter)), hash_name(tensor));
}

/// Uniform in [0, 1) with 24 bits, element `i` of the stream of `key`.
float uniform_float(std::uint64_t key, std::uint64_t i);

/// values[i] = uniform_float(key, first + i), many at a time.
void uniform_floats(std::uint64_t key, std::uint64_t first, std::span<float> values);

/// N(0, 1), element `i` of the stream of `key` (Box and Muller, 1958).
float normal_float(std::uint64_t key, std::uint64_t i);
/// values[i] = normal_float(key, first + i); its uniform numbers many at a time.
void normal_floats(std::uint64_t key, std::uint64_t first, std::span<float> values);

/// Uniform integer in [0, bound), element `i` of the stream of `key`; bound >= 1.
std::uint64_t uniform_int(std::uint64_t key, std::uint64_t i, std::uint64_t bound);

/// Dropout of the LoRA input, kept in 15-bit steps: an element is dropped when its 15 random bits
/// are < threshold; kept elements are multiplied by dropout_scale(threshold). The largest threshold
/// lets GPUs compare the bits as fp16 numbers, two at once.
inline constexpr double largest_dropout = 0.96875;
inline constexpr int dropout_rounds = 7;
inline std::uint32_t dropout_threshold(double p) {
    return static_cast<std::uint32_t>(std::lround(p * 32768.0));
}
inline float dropout_scale(std::uint32_t threshold) {
    return 32768.0F / static_cast<float>(32768U - threshold);
}
/// The 8 x 15 random bits of columns 8c .. 8c+7 at token `position` of sample `sample` in
/// optimizer step `step`: word w holds columns 8c+2w (low half) and 8c+2w+1 (high half).
inline std::array<std::uint32_t, 4> dropout_bits(std::uint64_t key, std::uint32_t step,
                                                 std::uint32_t sample, std::uint32_t position,
                                                 std::uint32_t column_block) {
    auto words = philox4x32({column_block, position, sample, step}, key, dropout_rounds);
    for (std::uint32_t& word : words) word &= 0x7fff7fffU;
    return words;
}

/// What 15 random bits stand for as noise: the middle of one of 32768 equal parts of (-1, 1).
inline float noise_unit(std::uint32_t bits) {
    return (static_cast<float>(bits) + 0.5F) / 16384.0F - 1.0F;
}

}  // namespace loratrain
