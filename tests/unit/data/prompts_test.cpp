#include "data/dataset_files.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "support/problems.h"

namespace loratrain {
namespace {

using test::has;
using test::problem_text;
using test::put;
using test::TempDir;

using Ids = std::vector<std::int32_t>;

class Prompts : public ::testing::Test {
  protected:
    std::vector<Prompt> read(const std::string& text, std::int64_t most = 100) {
        put(dir_.file("data.jsonl"), text);
        return prompts_in({dir_.file("data.jsonl"), DatasetJob{}, 100}, most, "math");
    }

    TempDir dir_;
};

TEST_F(Prompts, EndBeforeTheFirstTargets) {
    const std::vector<Prompt> prompts = read(
        "{\"input_ids\":[1,2,3,4],\"labels\":[-100,-100,3,4]}\n"
        "{\"input_ids\":[5,6,7,8,9],\"labels\":[-100,6,7,-100,9]}\n");
    ASSERT_EQ(prompts.size(), 2U);
    EXPECT_EQ(prompts[0].tokens, (Ids{1, 2}));
    EXPECT_EQ(prompts[0].reference, (Ids{3, 4}));
    EXPECT_EQ(prompts[1].sample, 1);
    EXPECT_EQ(prompts[1].tokens, (Ids{5}));
    EXPECT_EQ(prompts[1].reference, (Ids{6, 7}));  // of the first answer of a conversation
}

TEST_F(Prompts, AreOfSoManySamples) {
    const std::string line = "{\"input_ids\":[1,2],\"labels\":[-100,2]}\n";
    EXPECT_EQ(read(line + line + line, 2).size(), 2U);
    EXPECT_EQ(read(line, 2).size(), 1U);
}

TEST_F(Prompts, OfTextThatIsTrainedFromItsStartAreRefused) {
    const std::string line = "{\"input_ids\":[1,2],\"labels\":[-100,2]}\n";
    const std::string raw = "{\"input_ids\":[1,2]}\n";
    const std::string text = problem_text([&] { read(line + raw + raw); });
    EXPECT_TRUE(has(text, "datasets.math")) << text;
    EXPECT_TRUE(has(text, "2 of the 3 samples")) << text;
    EXPECT_TRUE(has(text, "the first is 1")) << text;
    EXPECT_EQ(read(line + raw, 1).size(), 1U);
}

}  // namespace
}  // namespace loratrain
