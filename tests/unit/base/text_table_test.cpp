#include "base/text_table.h"

#include <gtest/gtest.h>

namespace loratrain {

TEST(TextTable, AlignsColumns) {
    EXPECT_EQ(text_table({{"name", "n"}, {"a", "10"}, {"", "7"}}, 1),
              "  name   n\n"
              "  a     10\n"
              "         7\n");
    EXPECT_EQ(text_table({{"left", "x"}}, 2), "  left  x\n");
    EXPECT_EQ(text_table({}, 0), "");
}

}  // namespace loratrain
