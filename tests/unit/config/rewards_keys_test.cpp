#include <gtest/gtest.h>

#include <string>

#include "unit/config/job_files.h"

namespace loratrain {
namespace {

using RewardsKeys = JobFiles;

const std::string head =
    "model: {weights: base.h5}\n"
    "run: {dir: out}\n"
    "eval: {split: 0.1}\n"
    "datasets: {sums: {path: sums.jsonl, max_seq_len: 77}, other: {path: other.jsonl}}\n";

TEST_F(RewardsKeys, AnAdapterGetsADatasetOfItsRollouts) {
    const Job job =
        read(head +
             "defaults: {dataset: sums, loss: grpo, max_steps: 9}\n"
             "adapters:\n"
             "  - {name: plain, dataset: other, loss: sft}\n"
             "  - {name: rl, rewards: {program: ./judge -x, group_size: 4, top_p: 0.9,\n"
             "     stop_tokens: [5, 6], advantages: mean, timeout: 2.5}}\n");
    ASSERT_EQ(job.datasets.size(), 3U);
    const AdapterJob& adapter = job.adapters[1];
    EXPECT_EQ(job.dataset(adapter.dataset).name, "rl.rollouts");
    EXPECT_EQ(job.dataset(adapter.dataset).path, job.run.dir + "/rollouts/rl/");
    EXPECT_EQ(job.dataset(adapter.dataset).max_seq_len, 77);
    EXPECT_TRUE(job.dataset(adapter.dataset).grows());
    EXPECT_TRUE(job.dataset(adapter.dataset).made_in_job);
    EXPECT_FALSE(job.dataset(adapter.dataset).has_eval());
    EXPECT_EQ(job.dataset(*adapter.rewards.prompts).name, "sums");
    EXPECT_FALSE(job.adapters[0].rewards.wanted());
    EXPECT_EQ(job.dataset(job.adapters[0].dataset).name, "other");

    const Job again = read(to_yaml(job));
    ASSERT_EQ(again.datasets.size(), 3U);
    const AdapterJob& same = again.adapters[1];
    EXPECT_EQ(same.dataset, adapter.dataset);
    EXPECT_EQ(same.rewards.prompts, adapter.rewards.prompts);
    EXPECT_EQ(same.rewards.program, "./judge -x");
    EXPECT_EQ(same.rewards.group_size, 4);
    EXPECT_EQ(same.rewards.max_new_tokens, 256);
    EXPECT_EQ(same.rewards.temperature, 1.0);
    EXPECT_EQ(same.rewards.top_p, 0.9);
    EXPECT_EQ(same.rewards.stop_tokens, (std::vector<std::int32_t>{5, 6}));
    EXPECT_EQ(same.rewards.advantages, AdvantageScale::mean);
    EXPECT_EQ(same.rewards.timeout, 2.5);
    EXPECT_TRUE(again.dataset(same.dataset).grows());
    EXPECT_TRUE(again.dataset(same.dataset).made_in_job);
    EXPECT_FALSE(again.dataset(same.dataset).has_eval());
    EXPECT_EQ(to_yaml(again), to_yaml(job));
}

TEST_F(RewardsKeys, ANullTakesThoseOfDefaultsAway) {
    const Job job =
        read(head +
             "defaults: {dataset: sums, loss: grpo, max_steps: 9, rewards: {program: p}}\n"
             "adapters: [{name: rl}, {name: given, rewards: null, dataset: other}]\n");
    EXPECT_TRUE(job.adapters[0].rewards.wanted());
    EXPECT_FALSE(job.adapters[1].rewards.wanted());
    EXPECT_EQ(job.datasets.size(), 3U);
}

TEST_F(RewardsKeys, AllThatDoesNotFitIsSaidAtOnce) {
    const auto found = problems(
        head +
        "defaults: {dataset: sums, rewards: {program: p, group_size: 3}}\n"
        "adapters: [{name: a, loss: sft, max_steps: 1, global_batch_size: 6},\n"
        "  {name: b, loss: grpo, beta: 0.1, global_batch_size: 8},\n"
        "  {name: c, loss: ppo, max_steps: 2, global_batch_size: 6, rewards: {group_size: 3}},\n"
        "  {name: d, loss: ppo, max_steps: 2, global_batch_size: 6, rewards: {program: p,\n"
        "     group_size: 1, top_p: 0, temperature: 0, timeout: 0, prompts: none}}]\n");
    expect_among(found, at(6),
                 "adapters.a.rewards: does not go with loss: sft, which has no advantages",
                 "use loss: grpo");
    expect_among(found, at(7),
                 "adapters.b.beta: needs a reference, which jobs with rewards do not compute",
                 "set beta: 0");
    expect_among(found, at(7),
                 "adapters.b.global_batch_size: is 8, no multiple of rewards.group_size 3",
                 "prompts x group_size");
    expect_among(found, at(7), "adapters.b.max_steps: is missing", "after how many steps");
    expect_among(found, at(8), "adapters.c.rewards.program: is missing", "give the command");
    expect_among(found, at(10), "adapters.d.rewards.group_size: 1 is out of range", "at least 2");
    expect_among(found, at(10), "adapters.d.rewards.top_p: 0 is out of range", "greater than 0");
    expect_among(found, at(10), "adapters.d.rewards.temperature: 0 is out of range",
                 "greater than 0");
    expect_among(found, at(10), "adapters.d.rewards.timeout: 0 is out of range", "greater than 0");
    expect_among(found, at(10), "adapters.d.rewards.prompts: 'none' is not in datasets", "");
}

TEST_F(RewardsKeys, PromptsAndRolloutsElsewhere) {
    const std::string folders =
        "model: {weights: base.h5}\n"
        "run: {dir: out}\n"
        "datasets: {sums: {path: sums.jsonl}, tries: {path: tries/}}\n"
        "defaults: {loss: grpo, max_steps: 9}\n";
    const Job job = read(
        folders + "adapters: [{name: rl, dataset: tries, rewards: {program: p, prompts: sums}}]\n");
    EXPECT_EQ(job.datasets.size(), 2U);
    EXPECT_EQ(job.dataset(job.adapters[0].dataset).name, "tries");
    EXPECT_TRUE(job.datasets[1].made_in_job);
    expect_only(
        problems(folders +
                 "adapters: [{name: rl, dataset: sums, rewards: {program: p, prompts: sums}}]\n"),
        at(1), "adapters.rl.rewards.prompts: is given, but the adapter's dataset sums is no folder",
        "leave it out");
    expect_only(
        problems(folders + "adapters: [{name: rl, dataset: tries, rewards: {program: p}}]\n"),
        at(1), "adapters.rl.rewards.prompts: tries is a folder of rollouts and has no prompts",
        "give a dataset with a file");
    expect_only(problems("model: {weights: base.h5}\n"
                         "run: {dir: out}\n"
                         "datasets: {sums: {path: sums.jsonl}, rl.rollouts: {path: b.jsonl}}\n"
                         "adapters: [{name: rl, dataset: sums, loss: grpo, max_steps: 9, rewards: "
                         "{program: p}}]\n"),
                at(1),
                "adapters.rl.rewards.prompts: is missing, and there is a dataset rl.rollouts",
                "choose another name");
}

TEST_F(RewardsKeys, TwoDoNotWriteIntoOneFolder) {
    const std::vector<Problem> found = problems(
        "model: {weights: base.h5}\n"
        "run: {dir: out}\n"
        "datasets: {sums: {path: sums.jsonl}, one: {path: T/}, two: {path: ./T/}}\n"
        "defaults: {loss: grpo, max_steps: 9, rewards: {program: p, prompts: sums}}\n"
        "adapters: [{name: a, dataset: one}, {name: b, dataset: two}]\n");
    ASSERT_EQ(found.size(), 1U);
    EXPECT_TRUE(found[0].what.starts_with("datasets: one and two are one folder, "));
    EXPECT_EQ(found[0].hint, "give each dataset a folder of its own");
}

TEST_F(RewardsKeys, PromptsAloneNeedNoTargets) {
    const Job job = read(head +
                         "adapters: [{name: rl, dataset: sums, loss: grpo, max_steps: 9, rewards: "
                         "{program: p}}, {name: sft, dataset: other}]\n");
    EXPECT_TRUE(job.datasets[0].only_prompts);
    EXPECT_FALSE(job.datasets[1].only_prompts);
    EXPECT_FALSE(read(head +
                      "defaults: {dataset: sums}\n"
                      "adapters: [{name: rl, loss: grpo, max_steps: 9, rewards: {program: p}}, "
                      "{name: sft}]\n")
                     .datasets[0]
                     .only_prompts);
}

}  // namespace
}  // namespace loratrain
