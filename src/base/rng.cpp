#include "base/rng.h"

#include <algorithm>
#include <tuple>

#include "base/vector_code.h"

namespace loratrain {

namespace {

constexpr std::uint32_t first_multiplier = 0xD2511F53U;
constexpr std::uint32_t second_multiplier = 0xCD9E8D57U;
constexpr std::uint32_t first_key_step = 0x9E3779B9U;
constexpr std::uint32_t second_key_step = 0xBB67AE85U;

__extension__ using WideWord = unsigned __int128;

struct WidePair {
    std::uint32_t hi;
    std::uint32_t lo;
};

WidePair multiply(std::uint32_t a, std::uint32_t b) {
    const std::uint64_t product = static_cast<std::uint64_t>(a) * b;
    return {static_cast<std::uint32_t>(product >> 32U), static_cast<std::uint32_t>(product)};
}

constexpr std::size_t counters_at_once = std::tuple_size_v<PhiloxWords::value_type>;
constexpr std::size_t uniform_block = std::tuple_size_v<PhiloxWords> * counters_at_once;

/// Both as uniform_float() has them.
float box_muller(float first, float second) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - first));
    constexpr double turn = 6.283185307179586;
    return static_cast<float>(radius * std::cos(turn * second));
}

/// Elements uniform_block * first_block and on of the stream.
LORATRAIN_VECTOR_CODE
void fill_uniform_blocks(std::uint64_t key, std::uint64_t first_block, std::size_t blocks,
                         float* values) {
    for (std::size_t block = 0; block < blocks; ++block, values += uniform_block) {
        const std::uint64_t counter = (first_block + block) * counters_at_once;
        const PhiloxWords words = philox4x32_words(
            {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32U), 0, 0},
            key);
        for (std::size_t i = 0; i < counters_at_once; ++i) {
            for (std::size_t w = 0; w < words.size(); ++w) {
                const auto bits = static_cast<std::int32_t>(words[w][i] >> 8U);
                values[i * words.size() + w] = static_cast<float>(bits) * 0x1p-24F;
            }
        }
    }
}

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

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::uint64_t key,
                                        int rounds) {
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32U);
    for (int round = 0; round < rounds; ++round) {
        const WidePair p0 = multiply(first_multiplier, counter[0]);
        const WidePair p1 = multiply(second_multiplier, counter[2]);
        counter = {p1.hi ^ counter[1] ^ k0, p1.lo, p0.hi ^ counter[3] ^ k1, p0.lo};
        k0 += first_key_step;
        k1 += second_key_step;
    }
    return counter;
}

LORATRAIN_VECTOR_CODE
PhiloxWords philox4x32_words(const std::array<std::uint32_t, 4>& counter, std::uint64_t key,
                             int rounds) {
    PhiloxWords words{};
    for (std::size_t i = 0; i < words[0].size(); ++i) {
        words[0][i] = counter[0] + static_cast<std::uint32_t>(i);
        for (std::size_t w = 1; w < words.size(); ++w) words[w][i] = counter[w];
    }
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32U);
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < words[0].size(); ++i) {
            const WidePair p0 = multiply(first_multiplier, words[0][i]);
            const WidePair p1 = multiply(second_multiplier, words[2][i]);
            words[0][i] = p1.hi ^ words[1][i] ^ k0;
            words[1][i] = p1.lo;
            words[2][i] = p0.hi ^ words[3][i] ^ k1;
            words[3][i] = p0.lo;
        }
        k0 += first_key_step;
        k1 += second_key_step;
    }
    return words;
}

std::uint64_t hash_name(std::string_view name) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const char c : name) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3ULL;
    }
    return hash;
}

std::uint64_t mix_key(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a + 0x9e3779b97f4a7c15ULL * (b + 1);
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    x ^= x >> 31U;
    return x ^ (b << 1U);
}

float uniform_float(std::uint64_t key, std::uint64_t i) {
    const auto words = philox4x32(
        {static_cast<std::uint32_t>(i >> 2U), static_cast<std::uint32_t>(i >> 34U), 0, 0}, key);
    return static_cast<float>(words[i & 3U] >> 8U) * 0x1p-24F;
}

void uniform_floats(std::uint64_t key, std::uint64_t first, std::span<float> values) {
    std::size_t done = 0;
    for (; done < values.size() && (first + done) % uniform_block != 0; ++done) {
        values[done] = uniform_float(key, first + done);
    }
    const std::size_t blocks = (values.size() - done) / uniform_block;
    fill_uniform_blocks(key, (first + done) / uniform_block, blocks, values.data() + done);
    for (done += blocks * uniform_block; done < values.size(); ++done) {
        values[done] = uniform_float(key, first + done);
    }
}

float normal_float(std::uint64_t key, std::uint64_t i) {
    return box_muller(uniform_float(key, 2 * i), uniform_float(key, 2 * i + 1));
}

void normal_floats(std::uint64_t key, std::uint64_t first, std::span<float> values) {
    std::array<float, 16 * uniform_block> uniform;
    for (std::size_t begin = 0; begin < values.size(); begin += uniform.size() / 2) {
        const std::size_t count = std::min(uniform.size() / 2, values.size() - begin);
        uniform_floats(key, 2 * (first + begin), std::span(uniform).first(2 * count));
        for (std::size_t i = 0; i < count; ++i) {
            values[begin + i] = box_muller(uniform[2 * i], uniform[2 * i + 1]);
        }
    }
}

std::uint64_t uniform_int(std::uint64_t key, std::uint64_t i, std::uint64_t bound) {
    const auto words = philox4x32(
        {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32U), 1, 0}, key);
    const std::uint64_t wide = (static_cast<std::uint64_t>(words[0]) << 32U) | words[1];
    return static_cast<std::uint64_t>((static_cast<WideWord>(wide) * bound) >> 64U);
}

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
