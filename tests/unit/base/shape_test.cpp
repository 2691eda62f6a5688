#include "base/shape.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

TEST(Shape, CountsElements) {
    EXPECT_EQ(element_count({}), 1);
    EXPECT_EQ(element_count({7}), 7);
    EXPECT_EQ(element_count({3, 0}), 0);
    EXPECT_EQ(element_count({1 << 20, 1 << 20}), std::int64_t{1} << 40U);
}

TEST(Shape, IsWrittenAsAList) {
    EXPECT_EQ(shape_text({3, 5}), "[3, 5]");
    EXPECT_EQ(shape_text({}), "[]");
}

}  // namespace
}  // namespace loratrain
