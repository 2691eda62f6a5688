#include "config/inbox_yaml.h"

#include "unit/config/job_files.h"

namespace loratrain {
namespace {

class Inbox : public JobFiles {
  protected:
    Job job(const std::string& defaults = "") const {
        return read(
            "model: {weights: base.h5}\n"
            "run: {dir: out, seed: 5}\n"
            "datasets:\n"
            "  math: {path: math.jsonl}\n"
            "  code: {path: code.jsonl}\n" +
            defaults +
            "adapters:\n"
            "  - {name: first, dataset: code}\n");
    }
    static std::vector<Problem> inbox_problems(const std::string& text, const Job& job) {
        try {
            read_inbox(text, "new.yaml", job);
        } catch (const InputError& error) {
            return error.problems();
        }
        ADD_FAILURE() << "accepted: " << text;
        return {};
    }
};

TEST_F(Inbox, DefaultsOfTheJobApply) {
    const Job given = job("defaults: {r: 4, learning_rate: 1e-3, dataset: code, max_steps: 9}\n");
    const JobAdditions added = read_inbox(
        "adapters: [{name: second}, {name: third, r: 6, dataset: math}]\n", "new.yaml", given);
    ASSERT_EQ(added.adapters.size(), 2U);
    EXPECT_TRUE(added.datasets.empty());
    EXPECT_EQ(added.adapters[0].name, "second");
    EXPECT_EQ(added.adapters[0].r, 4);
    EXPECT_EQ(added.adapters[0].learning_rate, 1e-3);
    EXPECT_EQ(added.adapters[0].dataset, DatasetId{1});
    EXPECT_EQ(added.adapters[0].max_steps, 9);
    EXPECT_EQ(added.adapters[0].seed, 5U);
    EXPECT_EQ(added.adapters[1].r, 6);
    EXPECT_EQ(added.adapters[1].dataset, DatasetId{0});
}

TEST_F(Inbox, TheSplitOfTheJobIsTheDefault) {
    const JobAdditions added = read_inbox(
        "datasets: {a: {path: a}, b: {path: b, eval_split: 3}}\n"
        "adapters: [{name: second, dataset: a}]\n",
        "new.yaml", job("eval: {split: 0.25}\n"));
    ASSERT_EQ(added.datasets.size(), 2U);
    EXPECT_EQ(added.datasets[0].eval_split.fraction, 0.25);
    EXPECT_EQ(added.datasets[1].eval_split.samples, 3);
}

TEST_F(Inbox, AdaptersWithRewardsAreOfTheJobAlone) {
    const std::string text =
        "adapters: [{name: rl, dataset: code, loss: grpo, max_steps: 4, global_batch_size: 8,\n"
        "            rewards: {program: judge}}]\n";
    expect_only(inbox_problems(text, job()), "new.yaml:1",
                "adapters.rl.rewards: cannot be added to a run", "start another job");
}

TEST_F(Inbox, OwnDefaultsAreLaidOverThose) {
    const Job given = job("defaults: {r: 4, lora_alpha: 3, max_steps: 9, seed: 8}\n");
    const JobAdditions added = read_inbox(
        "defaults: {lora_alpha: 7, num_train_epochs: 2, dataset: math, priority: 2}\n"
        "adapters: [{name: second}]\n",
        "new.yaml", given);
    EXPECT_EQ(added.adapters[0].r, 4);
    EXPECT_EQ(added.adapters[0].lora_alpha, 7);
    EXPECT_EQ(added.adapters[0].max_steps, std::nullopt);
    EXPECT_EQ(added.adapters[0].num_train_epochs, 2);
    EXPECT_EQ(added.adapters[0].seed, 8U);
    EXPECT_EQ(added.adapters[0].priority, 2);
}

TEST_F(Inbox, DatasetsAreAddedAtTheEnd) {
    Job given = job();
    const JobAdditions added = read_inbox(
        "datasets: {poems: {path: poems.jsonl, max_seq_len: 64}}\n"
        "adapters: [{name: second, dataset: poems, init_from: start}]\n",
        "elsewhere/new.yaml", given);
    ASSERT_EQ(added.datasets.size(), 1U);
    EXPECT_EQ(added.datasets[0].path, folder() + "/poems.jsonl");
    EXPECT_EQ(added.datasets[0].max_seq_len, 64);
    EXPECT_EQ(added.adapters[0].dataset, DatasetId{2});
    EXPECT_EQ(added.adapters[0].init_from, folder() + "/start");
    add_to_job(given, added);
    EXPECT_EQ(given.dataset(given.adapter(AdapterId{1}).dataset).name, "poems");
    write(to_yaml(given));
    EXPECT_EQ(to_yaml(read_job(job_path(), {})), to_yaml(given));
}

TEST_F(Inbox, AJobThatHasGrownIsHarmlesslyDifferent) {
    Job given = job();
    const std::string before = to_yaml(given);
    add_to_job(given, read_inbox("datasets: {poems: {path: poems.jsonl}}\n"
                                 "adapters: [{name: second, dataset: poems}]\n",
                                 "new.yaml", given));
    const JobDifference difference = compare_jobs(before, to_yaml(given), "job.yaml");
    EXPECT_EQ(difference.harmful, std::vector<std::string>{});
    EXPECT_EQ(difference.harmless,
              (std::vector<std::string>{"datasets.poems: added", "adapters.second: added"}));
}

TEST_F(Inbox, TakenNames) {
    const Job given = job();
    expect_only(inbox_problems("adapters: [{name: First, dataset: math}]\n", given), "new.yaml:1",
                "adapters.First.name: 'First' is used twice",
                "the run has an adapter of this name; upper and lower case count as the same");
    expect_only(inbox_problems("datasets: {math: {path: x.jsonl}}\n"
                               "adapters: [{name: a, dataset: math}]\n",
                               given),
                "new.yaml:1", "datasets.math: the run has a dataset of this name",
                "leave it out to use that one");
}

TEST_F(Inbox, EveryProblemAtOnce) {
    const auto found = inbox_problems(
        "run: {dir: x}\n"
        "datasets: {poems: {max_seq_len: 0, path: p.jsonl}}\n"
        "defaults: {ranks: 4}\n"
        "adapters:\n"
        "  - {name: a, dataset: mth}\n"
        "  - {name: b, r: many}\n"
        "  - {name: b, dataset: math}\n",
        job());
    expect_among(found, "new.yaml:1", "unknown key 'run'", "");
    expect_among(found, "new.yaml:2", "datasets.poems.max_seq_len: 0 is out of range", "");
    expect_among(found, "new.yaml:3", "unknown key 'defaults.ranks'", "");
    expect_among(found, "new.yaml:5", "adapters.a.dataset: 'mth' is not in datasets", "math");
    expect_among(found, "new.yaml:6", "adapters.b.r: 'many' is not a whole number", "");
    expect_among(found, "new.yaml:6",
                 "adapters.b.dataset: is missing: the job has several datasets",
                 "math, code, poems");
    expect_among(found, "new.yaml:7", "adapters.b.name: 'b' is used twice", "new.yaml:6");
}

TEST_F(Inbox, NothingToAdd) {
    const Job given = job();
    expect_only(inbox_problems("", given), "new.yaml:1", "the file is empty", "adapters");
    expect_among(inbox_problems("datasets: {}\n", given), "new.yaml:1", "adapters: is missing",
                 "list at least one adapter");
    expect_among(inbox_problems("adapters: [\n", given), "new.yaml:2",
                 "not valid YAML: end of sequence flow not found", "");
}

}  // namespace
}  // namespace loratrain
