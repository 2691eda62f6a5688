#include "train/orders/additions_verdict.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "train/adapter_parts.h"
#include "train/eval_result.h"

namespace loratrain {
namespace {

TEST(AdditionsVerdict, TravelsAsItIs) {
    const std::vector<std::string> problems{"", "a.yaml: no 12\nnot even 7\n", "", "\n", ""};
    const std::string text = to_text(AdditionsVerdict{problems});
    EXPECT_TRUE(is_additions_verdict(text));
    EXPECT_EQ(additions_verdict_from_text(text).problems, problems);
    EXPECT_TRUE(additions_verdict_from_text(to_text(AdditionsVerdict{})).problems.empty());
}

TEST(AdditionsVerdict, IsTakenForNothingElse) {
    EXPECT_FALSE(is_adapter_piece(to_text(AdditionsVerdict{{""}})));
    const EvalResult result;
    EXPECT_FALSE(is_additions_verdict(to_text({&result, 1})));
}

TEST(AdditionsVerdict, ADamagedOneIsRefused) {
    for (const char* text : {"", "addition 0\n", "additions 0", "additions 3\nab",
                             "additions 1\nab", "additions 1 x\na"}) {
        EXPECT_THROW(additions_verdict_from_text(text), Error) << text;
    }
}

}  // namespace
}  // namespace loratrain
