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

}  // namespace
}  // namespace loratrain
