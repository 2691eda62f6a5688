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

TEST_F(Prompts, OfOneSampleAreThoseOfAll) {
    const std::string pair = R"({"chosen_input_ids":[1,2,3],"chosen_labels":[-100,-100,3],)"
                             R"("rejected_input_ids":[1,2,4],"rejected_labels":[-100,-100,4]})";
    put(dir_.file("pairs.jsonl"), cat(pair, '\n', pair, '\n'));
    const Dataset data(dir_.file("pairs.jsonl"), DatasetJob{}, 100);
    const std::vector<Prompt> all = prompts_in(data, 100, "math");
    ASSERT_EQ(all.size(), 2U);
    ASSERT_EQ(prompt_count(data), 2);
    for (std::int64_t i = 0; i < 2; ++i) {
        const Prompt prompt = read_prompt(data, i);
        EXPECT_EQ(prompt.sample, 2 * i);
        EXPECT_EQ(prompt.sample, all[static_cast<std::size_t>(i)].sample);
        EXPECT_EQ(prompt.tokens, (Ids{1, 2}));
        EXPECT_EQ(prompt.reference, (Ids{3}));
    }
}

class PromptsOfRewards : public Prompts {
  protected:
    PromptsOfRewards() {
        job_.path = "tune.yaml";
        job_.datasets.resize(2);
        job_.datasets[0].name = "math";
        job_.datasets[1].name = "texts";
        job_.datasets[1].max_seq_len = 8;
        files_.train.push_back(three_prompts());
        files_.train.push_back(Dataset::growing());
        for (const char* name : {"one", "two"}) {
            AdapterJob adapter;
            adapter.name = name;
            adapter.dataset = DatasetId{1};
            adapter.global_batch_size = 4;
            adapter.rewards.program = "true";
            adapter.rewards.prompts = DatasetId{0};
            adapter.rewards.group_size = 2;
            adapter.rewards.max_new_tokens = 4;
            job_.adapters.push_back(adapter);
        }
    }

    Dataset three_prompts(const std::string& more = "") {
        put(dir_.file("math.jsonl"), R"({"input_ids":[1,2],"labels":[-100,2]}
{"input_ids":[1,2,3,4,5],"labels":[-100,-100,-100,-100,5]}
{"input_ids":[1,2],"labels":[-100,2]}
)" + more);
        return {dir_.file("math.jsonl"), DatasetJob{}, 100};
    }

    std::string problems() {
        return problem_text([this] {
            Problems found;
            check_prompts(job_, files_, found);
            found.throw_if_any();
        });
    }

    Job job_;
    DatasetFiles files_;
};

TEST_F(PromptsOfRewards, FitWhereTheyLeaveRoomForTheirTexts) {
    Problems found;
    check_prompts(job_, files_, found);
    EXPECT_TRUE(found.empty());
    job_.adapters[1].rewards.max_new_tokens = 5;
    const std::string text = problems();
    EXPECT_TRUE(has(text,
                    "tune.yaml: adapters.two.rewards.max_new_tokens: is 5, but sample 1 of "
                    "math has a prompt of 4 tokens and max_seq_len is 8"))
        << text;
    EXPECT_FALSE(has(text, "adapters.one")) << text;
}

TEST_F(PromptsOfRewards, AreEnoughForABatch) {
    for (AdapterJob& adapter : job_.adapters) adapter.global_batch_size = 8;
    const std::string text = problems();
    for (const char* name : {"one", "two"}) {
        EXPECT_TRUE(has(text, cat("tune.yaml: adapters.", name,
                                  ".global_batch_size: needs 4 "
                                  "prompts a step, but dataset math has 3")))
            << text;
    }
}

TEST_F(PromptsOfRewards, ThatAreEmptyAreAProblemOfTheirDatasetAlone) {
    files_.train[0] = three_prompts("{\"input_ids\":[1,2]}\n");
    for (AdapterJob& adapter : job_.adapters) adapter.global_batch_size = 80;
    const std::string text = problems();
    EXPECT_TRUE(has(text,
                    "datasets.math: 1 of the 4 samples that rewards asks for have no prompt, "
                    "the first is 3"))
        << text;
    EXPECT_FALSE(has(text, "adapters.")) << text;
}

}  // namespace
}  // namespace loratrain
