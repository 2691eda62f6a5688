#include "io/run_files/event_file.h"

#include <array>
#include <bit>
#include <type_traits>

namespace loratrain {

namespace {

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

constexpr std::array<std::uint32_t, 256> make_crc_table() {
    constexpr std::uint32_t reversed_polynomial = 0x82f63b78U;
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
        std::uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? reversed_polynomial : 0U);
        }
        table[i] = crc;
    }
    return table;
}

template <class Int>
std::string little_endian(Int value) {
    static_assert(std::is_unsigned_v<Int>);
    std::string text;
    for (std::size_t i = 0; i < sizeof(Int); ++i) {
        text += static_cast<char>((value >> (8U * i)) & 0xffU);
    }
    return text;
}

std::string varint(std::uint64_t value) {
    std::string text;
    for (; value >= 0x80U; value >>= 7U) text += static_cast<char>((value & 0x7fU) | 0x80U);
    return text + static_cast<char>(value);
}

std::string key(unsigned field, Wire wire) {
    return varint((field << 3U) | static_cast<unsigned>(wire));
}

std::string bytes_field(unsigned field, std::string_view bytes) {
    return (key(field, Wire::bytes) + varint(bytes.size())).append(bytes);
}

std::string wall_time_field(double wall_time) {
    return key(1, Wire::fixed64) + little_endian(std::bit_cast<std::uint64_t>(wall_time));
}

std::string summary_value(const Scalar& scalar) {
    const auto value = std::bit_cast<std::uint32_t>(static_cast<float>(scalar.second));
    return bytes_field(1, scalar.first) + key(2, Wire::fixed32) + little_endian(value);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    static constexpr std::array<std::uint32_t, 256> table = make_crc_table();
    std::uint32_t crc = 0xffffffffU;
    for (const char c : bytes) {
        crc = (crc >> 8U) ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xffU];
    }
    return crc ^ 0xffffffffU;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
    return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

std::string tf_record(std::string_view payload) {
    const std::string length = little_endian(std::uint64_t{payload.size()});
    std::string record = length + little_endian(masked_crc32c(length));
    return record.append(payload) + little_endian(masked_crc32c(payload));
}

std::string event_file_header(double wall_time) {
    return tf_record(wall_time_field(wall_time) + bytes_field(3, "brain.Event:2"));
}

std::string scalar_event(double wall_time, std::int64_t step, const std::vector<Scalar>& scalars) {
    if (scalars.empty()) return "";
    std::string summary;
    for (const Scalar& scalar : scalars) summary += bytes_field(1, summary_value(scalar));
    return tf_record(wall_time_field(wall_time) + key(2, Wire::varint) +
                     varint(static_cast<std::uint64_t>(step)) + bytes_field(5, summary));
}

}  // namespace loratrain
