#include <gtest/gtest.h>

#include "measure/measured_costs.h"

namespace loratrain {
namespace {

TEST(FirstUsesText, TellsOfWhatThereWas) {
    EXPECT_EQ(first_uses_text({}), "");
    EXPECT_EQ(first_uses_text({7, 1.204, 0, 0.0}), "chose GEMM algorithms for 7 classes in 1.20 s");
    EXPECT_EQ(first_uses_text({0, 0.0, 20, 0.9}), "built 20 attention graphs in 0.90 s");
    EXPECT_EQ(first_uses_text({7, 1.204, 20, 0.9}),
              "chose GEMM algorithms for 7 classes in 1.20 s and built 20 attention graphs in "
              "0.90 s");
}

}  // namespace
}  // namespace loratrain
