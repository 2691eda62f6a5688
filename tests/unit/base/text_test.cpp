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

}  // namespace
}  // namespace loratrain
