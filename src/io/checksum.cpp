#include "io/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/vector_code.h"

namespace loratrain {

namespace {

constexpr std::uint64_t prime1 = 0x9E3779B185EBCA87ULL;
constexpr std::uint64_t prime2 = 0xC2B2AE3D27D4EB4FULL;
constexpr std::uint64_t prime3 = 0x165667B19E3779F9ULL;
constexpr std::uint64_t prime4 = 0x85EBCA77C2B2AE63ULL;
constexpr std::uint64_t prime5 = 0x27D4EB2F165667C5ULL;
constexpr std::size_t stripe = 32;

static_assert(std::endian::native == std::endian::little, "XXH64 reads little-endian words");

template <class Word>
std::uint64_t load_word(const unsigned char* bytes) {
    Word word;
    std::memcpy(&word, bytes, sizeof(word));
    return word;
}

std::uint64_t mix(std::uint64_t lane, std::uint64_t word) {
    return std::rotl(lane + word * prime2, 31) * prime1;
}

std::uint64_t merge(std::uint64_t hash, std::uint64_t lane) {
    return (hash ^ mix(0, lane)) * prime1 + prime4;
}

void take_stripe(std::uint64_t* lanes, const unsigned char* bytes) {
    for (std::size_t i = 0; i < 4; ++i) {
        lanes[i] = mix(lanes[i], load_word<std::uint64_t>(bytes + 8 * i));
    }
}

std::uint64_t take_tail(std::uint64_t hash, const unsigned char* bytes, std::size_t count) {
    for (; count >= 8; bytes += 8, count -= 8) {
        hash = std::rotl(hash ^ mix(0, load_word<std::uint64_t>(bytes)), 27) * prime1 + prime4;
    }
    if (count >= 4) {
        hash = std::rotl(hash ^ (load_word<std::uint32_t>(bytes) * prime1), 23) * prime2 + prime3;
        bytes += 4;
        count -= 4;
    }
    for (; count > 0; ++bytes, --count) hash = std::rotl(hash ^ (*bytes * prime5), 11) * prime1;
    return hash;
}

std::uint64_t avalanche(std::uint64_t hash) {
    hash = (hash ^ (hash >> 33U)) * prime2;
    hash = (hash ^ (hash >> 29U)) * prime3;
    return hash ^ (hash >> 32U);
}

}  // namespace

Checksum::Checksum() : lanes_{prime1 + prime2, prime2, 0, 0 - prime1}, pending_{} {}

void Checksum::update(const void* data, std::size_t bytes) {
    const auto* in = static_cast<const unsigned char*>(data);
    total_ += bytes;
    if (pending_bytes_ > 0) {
        const std::size_t missing = stripe - pending_bytes_;
        const std::size_t taken = bytes < missing ? bytes : missing;
        if (taken > 0) std::memcpy(pending_ + pending_bytes_, in, taken);
        pending_bytes_ += taken;
        in += taken;
        bytes -= taken;
        if (pending_bytes_ < stripe) return;
        take_stripe(lanes_, pending_);
        pending_bytes_ = 0;
    }
    for (; bytes >= stripe; in += stripe, bytes -= stripe) take_stripe(lanes_, in);
    if (bytes > 0) std::memcpy(pending_, in, bytes);
    pending_bytes_ = bytes;
}

std::uint64_t Checksum::value() const {
    std::uint64_t hash = prime5;
    if (total_ >= stripe) {
        hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
               std::rotl(lanes_[3], 18);
        for (const std::uint64_t lane : lanes_) hash = merge(hash, lane);
    }
    return avalanche(take_tail(hash + total_, pending_, pending_bytes_));
}

std::string Checksum::hex() const {
    static constexpr std::string_view digits = "0123456789abcdef";
    const std::uint64_t hash = value();
    std::string text;
    for (int shift = 60; shift >= 0; shift -= 4) {
        text += digits[(hash >> static_cast<unsigned>(shift)) & 15U];
    }
    return text;
}

namespace {

/// Sums of n little-endian words w_i: `plain` of w_i, `weighted` of (n - i) w_i.
struct WordSums {
    std::uint64_t plain = 0;
    std::uint64_t weighted = 0;
};

constexpr std::uint64_t modulus = 0xffff;

/// Words side by side in vectors; of `steps` vectors one lane's sum of sums stays below 2^32.
constexpr std::size_t word_lanes = 32;
constexpr std::size_t most_steps = 360;
static_assert(modulus * most_steps * (most_steps + 1) / 2 < (std::uint64_t{1} << 32U));

LORATRAIN_VECTOR_CODE WordSums sum_words(const unsigned char* data, std::size_t steps) {
    std::uint32_t plain[word_lanes] = {};
    std::uint32_t weighted[word_lanes] = {};
    for (std::size_t step = 0; step < steps; ++step) {
        std::uint16_t words[word_lanes];
        std::memcpy(words, data + step * sizeof(words), sizeof(words));
        for (std::size_t lane = 0; lane < word_lanes; ++lane) {
            plain[lane] += words[lane];
            weighted[lane] += plain[lane];
        }
    }
    // Word i = step * lanes + lane has the weight n - i = (steps - step) * lanes - lane.
    WordSums sums;
    for (std::size_t lane = 0; lane < word_lanes; ++lane) {
        sums.plain += plain[lane];
        sums.weighted += std::uint64_t{word_lanes} * weighted[lane] - lane * plain[lane];
    }
    return sums;
}

/// Appends `words` words.
void append(WordSums& sums, const WordSums& next, std::uint64_t words) {
    sums.weighted = (sums.weighted + sums.plain * words + next.weighted) % modulus;
    sums.plain = (sums.plain + next.plain) % modulus;
}

}  // namespace

std::uint32_t fletcher32(const void* data, std::size_t bytes) {
    const auto* in = static_cast<const unsigned char*>(data);
    constexpr std::size_t step_bytes = word_lanes * sizeof(std::uint16_t);
    WordSums sums;
    bool all_zero = true;
    const auto take = [&](const WordSums& next, std::uint64_t words) {
        all_zero = all_zero && next.plain == 0;
        append(sums, next, words);
    };
    while (bytes >= step_bytes) {
        const std::size_t steps = std::min(bytes / step_bytes, most_steps);
        take(sum_words(in, steps), steps * word_lanes);
        in += steps * step_bytes;
        bytes -= steps * step_bytes;
    }
    for (; bytes > 0; in += 2, bytes -= std::min<std::size_t>(bytes, 2)) {
        const std::uint64_t word = in[0] + (bytes > 1 ? std::uint64_t{in[1]} << 8U : 0);
        take({word, word}, 1);
    }
    if (all_zero) return 0;
    // Swapping a word's bytes multiplies it by 256, as 2^16 is 1. HDF5's sums of words that are not
    // all zero are never 0 but `modulus`.
    const auto swapped = [](std::uint64_t sum) {
        const auto rest = static_cast<std::uint32_t>(sum * 256 % modulus);
        return rest == 0 ? static_cast<std::uint32_t>(modulus) : rest;
    };
    return swapped(sums.weighted) << 16U | swapped(sums.plain);
}

}  // namespace loratrain
