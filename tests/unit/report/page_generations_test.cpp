#include <gtest/gtest.h>

#include "report/page_parts.h"

namespace loratrain {
namespace {

RunRecord run_with(const std::string& lines) {
    RunRecord run;
    run.job.adapters.resize(2);
    run.job.adapters[0].name = "silent";
    run.job.adapters[1].name = "writer";
    run.generations = {"", lines};
    return run;
}

bool has(const std::string& page, const std::string& part) {
    return page.find(part) != std::string::npos;
}

TEST(Generations, AreLeftOutWhereThereAreNone) {
    EXPECT_EQ(report::generations(run_with("")), "");
    EXPECT_EQ(report::generations({}), "");
    EXPECT_EQ(report::generations(run_with("torn{\n")), "");
}

TEST(Generations, AreShownAsIdsBeforeTheyAreDecoded) {
    const std::string page = report::generations(run_with(
        "{\"sample\":0,\"prompt\":[1,2],\"generated\":[3,4],\"reference\":[3,4],\"stopped\":true}\n"
        "{\"sample\":1,\"prompt\":[1],\"generated\":[3],\"reference\":[4],\"stopped\":false}\n"));
    EXPECT_TRUE(has(page, "writer"));
    EXPECT_FALSE(has(page, "silent"));
    EXPECT_TRUE(has(page, ">[3,4]<")) << page;
    EXPECT_TRUE(has(page, ">1 (50.0%)<"));
    EXPECT_TRUE(has(page, ">-<")) << "no answers have been compared";
}

TEST(Generations, AreShownAsTextWithRightAnswers) {
    const std::string page = report::generations(run_with(
        "{\"prompt\":[1],\"generated\":[3],\"reference\":[4],\"stopped\":false,"
        "\"prompt_text\":\"2<3?\",\"generated_text\":\"#### 5\",\"reference_text\":\"so #### 5\","
        "\"match\":true}\n"));
    EXPECT_TRUE(has(page, ">2&lt;3?<")) << page;
    EXPECT_TRUE(has(page, ">1 (100.0%)<"));
    EXPECT_TRUE(has(page, ">0 (0.0%)<"));
}

}  // namespace
}  // namespace loratrain
