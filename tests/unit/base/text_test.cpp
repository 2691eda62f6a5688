#include "base/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/rng.h"

namespace loratrain {
namespace {

TEST(Text, CatWritesItsArgumentsInOrder) {
    EXPECT_EQ(cat("a", 1, '-', 2.5), "a1-2.5");
    EXPECT_EQ(cat(), "");
}

TEST(Text, JoinSeparatesEveryWordEvenEmptyOnes) {
    EXPECT_EQ(join({}, ", "), "");
    EXPECT_EQ(join({"a"}, ", "), "a");
    EXPECT_EQ(join({"a", "b", "c"}, ", "), "a, b, c");
    EXPECT_EQ(join({"", "b", ""}, ","), ",b,");
}

TEST(Nearest, FindsTypingErrors) {
    const std::vector<std::string> keys{"learning_rate", "lora_alpha", "r", "seed", "path"};
    EXPECT_EQ(nearest("learning_rat", keys), "learning_rate");
    EXPECT_EQ(nearest("leraning_rate", keys), "learning_rate");
    EXPECT_EQ(nearest("lora_aplha", keys), "lora_alpha");
    EXPECT_EQ(nearest("sed", keys), "seed");
    EXPECT_EQ(nearest("sede", keys), "seed");
    EXPECT_EQ(nearest("rnu", {"model", "run"}), "run");
    EXPECT_EQ(nearest("nru", {"run"}), "");
    EXPECT_EQ(nearest("path", keys), "path");
}

TEST(Nearest, PrefersTheSmallestDistance) {
    EXPECT_EQ(nearest("adam_beta3", {"adam_bet", "adam_beta1", "adam_beta33"}), "adam_beta1");
    EXPECT_EQ(nearest("abcd", {"abcx", "abcd"}), "abcd");
}

TEST(Nearest, GivesNothingWhenNothingIsNear) {
    EXPECT_EQ(nearest("optimizer", {"learning_rate", "seed"}), "");
    EXPECT_EQ(nearest("x", {"r"}), "");
    EXPECT_EQ(nearest("xy", {"r", "ab"}), "");
    EXPECT_EQ(nearest("abcdef", {"abcxyz"}), "");
    EXPECT_EQ(nearest("abcdefghijkl", {"abcdefghwxyz"}), "abcdefghwxyz");
    EXPECT_EQ(nearest("anything", {}), "");
}

TEST(HumanBytes, PicksTheUnit) {
    EXPECT_EQ(human_bytes(0), "0 B");
    EXPECT_EQ(human_bytes(1023), "1023 B");
    EXPECT_EQ(human_bytes(1024), "1.0 KiB");
    EXPECT_EQ(human_bytes(3565158), "3.4 MiB");
    EXPECT_EQ(human_bytes(55ULL << 30U), "55.0 GiB");
    EXPECT_EQ(human_bytes((1ULL << 20U) - 1), "1.0 MiB");
    EXPECT_EQ(human_bytes(5000ULL << 40U), "5000.0 TiB");
}

TEST(HumanDuration, PicksTheUnits) {
    EXPECT_EQ(human_duration(0.2), "0 s");
    EXPECT_EQ(human_duration(42.4), "42 s");
    EXPECT_EQ(human_duration(59.6), "1 min 0 s");
    EXPECT_EQ(human_duration(200), "3 min 20 s");
    EXPECT_EQ(human_duration(5 * 3600 + 12 * 60 + 59), "5 h 12 min");
    EXPECT_EQ(human_duration(-3), "0 s");
    EXPECT_EQ(human_duration(std::numeric_limits<double>::infinity()), "unknown");
    EXPECT_EQ(human_duration(std::nan("")), "unknown");
}

TEST(ThreeDigits, KeepsThemAtEverySize) {
    EXPECT_EQ(three_digits(347.2), "347");
    EXPECT_EQ(three_digits(5.2), "5.20");
    EXPECT_EQ(three_digits(0.08671), "0.0867");
    EXPECT_EQ(three_digits(1.5e-7), "0.000000150");
    EXPECT_EQ(three_digits(1e-12), "0");
    EXPECT_EQ(three_digits(0.0), "0");
}

TEST(FormatFixed, RoundsToTheDecimals) {
    EXPECT_EQ(format_fixed(3.14159, 2), "3.14");
    EXPECT_EQ(format_fixed(2.999, 2), "3.00");
    EXPECT_EQ(format_fixed(-0.5, 3), "-0.500");
    EXPECT_EQ(format_fixed(1e300, 1).size(), 303U);
}

TEST(FormatExact, ReadsBackAsTheSameDouble) {
    for (const double value :
         {0.0, 0.1, 1.0 / 3.0, 2.0e-4, 1e-300, 1.7976931348623157e308, -5e-324}) {
        EXPECT_EQ(std::strtod(format_exact(value).c_str(), nullptr), value);
    }
    for (std::uint64_t i = 0; i < 2000; ++i) {
        const double value =
            std::ldexp(uniform_float(7, i) + 1.0 / 3.0, static_cast<int>(i % 80) - 40);
        EXPECT_EQ(std::strtod(format_exact(value).c_str(), nullptr), value);
    }
}

TEST(FormatExact, IsTheShortestText) {
    EXPECT_EQ(format_exact(0.1), "0.1");
    EXPECT_EQ(format_exact(32.0), "32");
    EXPECT_EQ(format_exact(0.999), "0.999");
}

TEST(TextTable, AlignsColumns) {
    EXPECT_EQ(text_table({{"name", "n"}, {"a", "10"}, {"", "7"}}, 1),
              "  name   n\n"
              "  a     10\n"
              "         7\n");
    EXPECT_EQ(text_table({{"left", "x"}}, 2), "  left  x\n");
    EXPECT_EQ(text_table({}, 0), "");
}

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

TEST(NumberAfter, IsAllOfTheText) {
    EXPECT_EQ(number_after("step-7", "step-"), 7);
    EXPECT_EQ(number_after("step-0042", "step-"), 42);
    EXPECT_EQ(number_after("2147483647", ""), INT32_MAX);
    for (const char* other : {"", "step", "step-", "step--1", "step-+1", "step-1x", "step- 1",
                              "stop-1", "step-2147483648"}) {
        EXPECT_FALSE(number_after(other, "step-")) << other;
    }
}

TEST(Wrapped, BreaksAtBlanks) {
    EXPECT_EQ(wrapped("", 2), "");
    EXPECT_EQ(wrapped("label  some words here", 4, 12), "label  some\n    words\n    here");
    EXPECT_EQ(wrapped("a wordthatistoolong b", 1, 8), "a\n wordthatistoolong\n b");
    EXPECT_EQ(wrapped("fits exactly", 2, 12), "fits exactly");
}

}  // namespace
}  // namespace loratrain
