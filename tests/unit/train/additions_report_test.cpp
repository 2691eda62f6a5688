#include "train/orders/additions_report.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "train/adapter_parts.h"
#include "train/eval_result.h"

namespace loratrain {
namespace {

TEST(AdditionsReport, TravelsAsItIs) {
    const std::vector<std::string> problems{"", "a.yaml: no 12\nnot even 7\n", "", "\n", ""};
    const std::string text = to_text(AdditionsReport{problems});
    EXPECT_TRUE(is_additions_report(text));
    EXPECT_EQ(additions_report_from_text(text).problems, problems);
    EXPECT_TRUE(additions_report_from_text(to_text(AdditionsReport{})).problems.empty());
}

TEST(AdditionsReport, IsTakenForNothingElse) {
    EXPECT_FALSE(is_adapter_piece(to_text(AdditionsReport{{""}})));
    const EvalResult result;
    EXPECT_FALSE(is_additions_report(to_text({&result, 1})));
}

TEST(AdditionsReport, ADamagedOneIsRefused) {
    for (const char* text : {"", "addition 0\n", "additions 0", "additions 3\nab",
                             "additions 1\nab", "additions 1 x\na"}) {
        EXPECT_THROW(additions_report_from_text(text), Error) << text;
    }
}

}  // namespace
}  // namespace loratrain
