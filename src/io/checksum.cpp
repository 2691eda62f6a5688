#include "io/checksum.h"

#include <bit>
#include <cstring>

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

}  // namespace loratrain
