#include "backend/cpu/dropout_mask.h"

#include <algorithm>
#include <array>

#include "base/rng.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

constexpr std::int64_t columns_per_word_block = 8;
constexpr int counters = 16;
constexpr std::int64_t columns_per_call = counters * columns_per_word_block;

/// dropout_bits (base/rng.h) of `counters` neighbouring column blocks at once; bits[j] are the 15
/// random bits of column 8 * first_block + j.
LORATRAIN_VECTOR_CODE
void random_bits(const DropoutRow& row, std::uint32_t first_block,
                 std::array<std::uint16_t, columns_per_call>& bits) {
    std::array<std::uint32_t, counters> c0;
    std::array<std::uint32_t, counters> c1;
    std::array<std::uint32_t, counters> c2;
    std::array<std::uint32_t, counters> c3;
    for (int i = 0; i < counters; ++i) c0[i] = first_block + i;
    c1.fill(row.position);
    c2.fill(row.sample);
    c3.fill(row.step);
    auto k0 = static_cast<std::uint32_t>(row.key);
    auto k1 = static_cast<std::uint32_t>(row.key >> 32U);
    for (int round = 0; round < dropout_rounds; ++round) {
#pragma omp simd
        for (int i = 0; i < counters; ++i) {
            const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0[i];
            const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2[i];
            c0[i] = static_cast<std::uint32_t>(p1 >> 32U) ^ c1[i] ^ k0;
            c1[i] = static_cast<std::uint32_t>(p1);
            c2[i] = static_cast<std::uint32_t>(p0 >> 32U) ^ c3[i] ^ k1;
            c3[i] = static_cast<std::uint32_t>(p0);
        }
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    for (int i = 0; i < counters; ++i) {
        const std::array<std::uint32_t, 4> words{c0[i], c1[i], c2[i], c3[i]};
        for (int w = 0; w < 4; ++w) {
            bits[8 * i + 2 * w] = static_cast<std::uint16_t>(words[w] & 0x7fffU);
            bits[8 * i + 2 * w + 1] = static_cast<std::uint16_t>(words[w] >> 16U & 0x7fffU);
        }
    }
}

template <bool accumulate>
LORATRAIN_VECTOR_CODE void apply(const DropoutRow& row, std::int64_t first, std::int64_t count,
                                 const float* source, float* target) {
    const float scale = dropout_scale(row.threshold);
    std::array<std::uint16_t, columns_per_call> bits;
    for (std::int64_t begin = 0; begin < count; begin += columns_per_call) {
        random_bits(row, static_cast<std::uint32_t>((first + begin) / columns_per_word_block),
                    bits);
        const std::int64_t part = std::min(columns_per_call, count - begin);
        const float* in = source + begin;
        float* out = target + begin;
#pragma omp simd
        for (std::int64_t j = 0; j < part; ++j) {
            const float kept = bits[j] >= row.threshold ? in[j] * scale : 0.0F;
            out[j] = accumulate ? out[j] + kept : kept;
        }
    }
}

}  // namespace

void drop_row(const DropoutRow& row, std::int64_t first, std::int64_t count, const float* source,
              float* target) {
    apply<false>(row, first, count, source, target);
}

void add_dropped_row(const DropoutRow& row, std::int64_t first, std::int64_t count,
                     const float* source, float* target) {
    apply<true>(row, first, count, source, target);
}

LORATRAIN_VECTOR_CODE
void add_noise_row(const DropoutRow& row, std::int64_t count, float amplitude, float* target) {
    std::array<std::uint16_t, columns_per_call> bits;
    for (std::int64_t begin = 0; begin < count; begin += columns_per_call) {
        random_bits(row, static_cast<std::uint32_t>(begin / columns_per_word_block), bits);
        const std::int64_t end = std::min(columns_per_call, count - begin);
#pragma omp simd
        for (std::int64_t j = 0; j < end; ++j) {
            target[begin + j] += amplitude * noise_unit(bits[static_cast<std::size_t>(j)]);
        }
    }
}

}  // namespace loratrain
