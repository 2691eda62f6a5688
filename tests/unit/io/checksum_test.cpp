#include "io/checksum.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace loratrain {
namespace {

std::string hex_of(const std::string& text) {
    Checksum checksum;
    checksum.update(text.data(), text.size());
    return checksum.hex();
}

// Known answers of the reference implementation (xxhsum -H1).
TEST(ChecksumTest, KnownAnswers) {
    EXPECT_EQ(hex_of(""), "ef46db3751d8e999");
    EXPECT_EQ(hex_of("a"), "d24ec4f1a98c6e5b");
    EXPECT_EQ(hex_of("abc"), "44bc2cf5ad770999");
    EXPECT_EQ(hex_of("Nobody inspects the spammish repetition"), "fbcea83c8a378bf1");
}

TEST(ChecksumTest, StreamingEqualsOneCall) {
    std::string text;
    for (int i = 0; i < 500; ++i) text += static_cast<char>(i * 7 + i / 13);
    const std::string whole = hex_of(text);
    for (std::size_t step = 1; step < 80; ++step) {
        Checksum checksum;
        for (std::size_t i = 0; i < text.size(); i += step) {
            checksum.update(text.data() + i, std::min(step, text.size() - i));
        }
        EXPECT_EQ(checksum.hex(), whole) << "in steps of " << step;
    }
}

TEST(ChecksumTest, SeesEveryByte) {
    std::string text(67, 'x');
    const std::string whole = hex_of(text);
    for (char& c : text) {
        c = 'y';
        EXPECT_NE(hex_of(text), whole);
        c = 'x';
    }
    EXPECT_NE(hex_of(text + 'x'), whole);
}

/// Word by word, with HDF5's way to keep its sums small.
std::uint32_t plain_fletcher32(const std::vector<unsigned char>& data) {
    std::uint32_t plain = 0;
    std::uint32_t weighted = 0;
    const auto fold = [](std::uint32_t sum) { return (sum & 0xffffU) + (sum >> 16U); };
    for (std::size_t i = 0; i < data.size(); i += 2) {
        const std::uint32_t low = i + 1 < data.size() ? data[i + 1] : 0U;
        plain = fold(plain + (std::uint32_t{data[i]} << 8U) + low);
        weighted = fold(weighted + plain);
    }
    return weighted << 16U | plain;
}

TEST(Fletcher32Test, EqualsTheSumWordByWord) {
    std::vector<unsigned char> data;
    std::uint32_t state = 1;
    for (const std::size_t size :
         {0, 1, 2, 3, 63, 64, 65, 127, 128, 23039, 23040, 23041, 1 << 20}) {
        while (data.size() < size) {
            state = state * 1664525U + 1013904223U;
            data.push_back(static_cast<unsigned char>(state >> 24U));
        }
        EXPECT_EQ(fletcher32(data.data(), data.size()), plain_fletcher32(data)) << size;
    }
}

TEST(Fletcher32Test, SumsThatAreMultiplesOfTheModulus) {
    for (const unsigned char byte : {0x00, 0xff}) {  // words of 0 and of the modulus
        for (const std::size_t size : {2, 64, 1000, 100001}) {
            const std::vector<unsigned char> data(size, byte);
            EXPECT_EQ(fletcher32(data.data(), size), plain_fletcher32(data)) << size;
        }
    }
}

}  // namespace
}  // namespace loratrain
