#include "base/terminal.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

constexpr TerminalSize usual{24, 80};

TEST(FitLine, CutsCharactersNotBytes) {
    EXPECT_EQ(fit_line("table", 5), "table");
    EXPECT_EQ(fit_line("table", 4), "tabl");
    EXPECT_EQ(fit_line("aüo", 2), "aü");
    EXPECT_EQ(fit_line("ü", 0), "");
}

TEST(FitLine, LeavesNothingThatMovesTheCursor) {
    EXPECT_EQ(fit_line("a\nb\x1b[2J\r\x7f", 80), "a b [2J  ");
}

TEST(LiveRegion, NothingToEraseAtFirst) {
    LiveRegion region;
    EXPECT_EQ(region.draw("", {"one", "two"}, usual), "one\ntwo\n");
}

TEST(LiveRegion, DrawsAnewInPlace) {
    LiveRegion region;
    region.draw("", {"one", "two"}, usual);
    EXPECT_EQ(region.draw("", {"three"}, usual), "\r\x1b[2A\x1b[Jthree\n");
    EXPECT_EQ(region.draw("log\n", {"four"}, usual), "\r\x1b[1A\x1b[Jlog\nfour\n");
}

TEST(LiveRegion, LeavesARowAndAColumn) {
    LiveRegion region;
    EXPECT_EQ(region.draw("", {"abcdef", "b", "c", "d"}, {3, 4}), "abc\nb\n");
    EXPECT_EQ(region.draw("", {"abcdef"}, {1, 1}), "\r\x1b[4A\x1b[J\n");
}

TEST(LiveRegion, ATerminalThatBecameNarrowerHasBrokenTheLines) {
    LiveRegion region;
    region.draw("", {"123456789", "", "12345"}, usual);
    EXPECT_EQ(region.draw("", {"x"}, {24, 4}), "\r\x1b[6A\x1b[Jx\n");
}

TEST(LiveRegion, WhatWasLeftIsNotErased) {
    LiveRegion region;
    region.draw("", {"one"}, usual);
    region.leave();
    EXPECT_EQ(region.draw("log\n", {"two"}, usual), "log\ntwo\n");
}

}  // namespace
}  // namespace loratrain
