#include "plan/describe.h"

#include <gtest/gtest.h>

#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

TEST(Describe, ShowsStagesAndAdapters) {
    const Case test = uniform_case(3, 2, 20, 10, 8);
    const std::string text = describe(test.job, test.plan(), test.datasets);
    for (const char* words :
         {"2 layers", "a2", "embedding", "head", "first round 2 microbatches, 240 tokens",
          "steps/epoch", "200", "workspace"}) {
        EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
    }
}

}  // namespace loratrain::plan_test
