#include "base/printable.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

TEST(Printable, TextStaysAsItIs) {
    for (const std::string text : {"", "plain\n\ttext ~", "\xc3\xa4 \xe2\x82\xac", "\xc2\xa0"}) {
        EXPECT_EQ(printable(text), text);
    }
}

TEST(Printable, WhatIsNotUtf8IsShownAsBytes) {
    EXPECT_EQ(printable("a\xc2"), "a\\xc2") << "cut off";
    EXPECT_EQ(printable("\xa2|\xff"), "\\xa2|\\xff");
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half a surrogate pair";
    EXPECT_EQ(printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf") << "longer than it has to be";
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last";
    EXPECT_EQ(printable("\xf4\x8f\xbf\xbf"), "\xf4\x8f\xbf\xbf");
}

TEST(Printable, ControlCharactersAreShown) {
    EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
    EXPECT_EQ(printable("\r\a\x7f"), "\\x0d\\x07\\x7f");
    EXPECT_EQ(printable(std::string("\0x", 2)), "\\x00x");
    EXPECT_EQ(printable("\xc2\x9b"
                        "31m"),
              "\\x9b31m");
}

/// Terminals that take each byte for a character obey 0x9b as well.
TEST(Printable, HiddenCharactersAreShown) {
    EXPECT_EQ(printable("a\x9b"
                        "31m"),
              "a\\x9b31m");
    EXPECT_EQ(printable("a\xe2\x80\xae"
                        "b"),
              "a\\xe2\\x80\\xaeb")
        << "turns the direction round";
    EXPECT_EQ(printable("\xe2\x80\xa8|\xe2\x81\xa6"), "\\xe2\\x80\\xa8|\\xe2\\x81\\xa6");
    EXPECT_EQ(printable("\xd8\x9c\xe2\x80\x8f"), "\\xd8\\x9c\\xe2\\x80\\x8f") << "marks alone do";
    EXPECT_EQ(printable("\xe2\x80\x8b\xef\xbb\xbf"), "\\xe2\\x80\\x8b\\xef\\xbb\\xbf")
        << "nobody sees them";
    EXPECT_EQ(printable("\xe2\x80\x8d"), "\xe2\x80\x8d") << "letters of a word";
    EXPECT_EQ(printable("\xe2\x80\xa6 \xf0\x9f\x98\x80"), "\xe2\x80\xa6 \xf0\x9f\x98\x80");
}

}  // namespace
}  // namespace loratrain
