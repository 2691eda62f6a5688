#include <gtest/gtest.h>

#include "measure/measured_costs.h"

namespace loratrain {
namespace {

TEST(FirstUsesText, TellsOfWhatThereWas) {
    EXPECT_EQ(first_uses_text({}), "");
    EXPECT_EQ(first_uses_text({7, 1.204}), "chose GEMM algorithms for 7 classes in 1.20 s");
}

}  // namespace
}  // namespace loratrain
