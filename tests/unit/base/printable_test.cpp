#include "base/printable.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

TEST(Printable, TextStaysAsItIs) {
    for (const std::string text :
         {"", "plain\n\ttext ~", "\xc3\xa4 \xe2\x82\xac", "\xc2", "\xc2\xa0"}) {
        EXPECT_EQ(printable(text), text);
    }
}

TEST(Printable, ControlCharactersAreShown) {
    EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
    EXPECT_EQ(printable("\r\a\x7f"), "\\x0d\\x07\\x7f");
    EXPECT_EQ(printable(std::string("\0x", 2)), "\\x00x");
    EXPECT_EQ(printable("\xc2\x9b"
                        "31m"),
              "\\x9b31m");
}

}  // namespace
}  // namespace loratrain
