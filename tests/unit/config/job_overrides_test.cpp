#include <gtest/gtest.h>

#include "unit/config/job_files.h"

namespace loratrain {
namespace {

class JobOverrides : public JobFiles {
  protected:
    const std::string job_text_ =
        "model: {weights: base.h5}\n"
        "run: {dir: out}\n"
        "datasets:\n"
        "  math: {path: math.jsonl, eval_path: eval.jsonl}\n"
        "  v1.0: {path: v.jsonl}\n"
        "defaults: {dataset: math, r: 4, num_train_epochs: 3}\n"
        "adapters:\n"
        "  - {name: a}\n"
        "  - {name: b.r8, r: 8}\n";
};

TEST_F(JobOverrides, ReplaceValuesOfTheFile) {
    const Job job = read(job_text_, {{"run.seed", "7"},
                                     {"defaults.r", "5"},
                                     {"defaults.learning_rate", "1e-4"},
                                     {"adapters.b.r8.r", "32"},
                                     {"adapters.a.target_modules", "[q_proj, v_proj]"},
                                     {"datasets.v1.0.max_seq_len", "77"},
                                     {"checkpoint.keep", "9"},
                                     {"parallel.pipeline_stages", "auto"}});
    EXPECT_EQ(job.run.seed, 7U);
    EXPECT_EQ(job.adapters[0].r, 5);
    EXPECT_EQ(job.adapters[0].learning_rate, 1e-4);
    EXPECT_EQ(job.adapters[0].seed, 7U);
    EXPECT_TRUE(job.adapters[0].targets_linear(Linear::v));
    EXPECT_FALSE(job.adapters[0].targets_linear(Linear::o));
    EXPECT_EQ(job.adapters[1].r, 32);
    EXPECT_TRUE(job.adapters[1].targets_linear(Linear::o));
    EXPECT_EQ(job.datasets[1].max_seq_len, 77);
    EXPECT_EQ(job.checkpoint.keep, 9);
}

TEST_F(JobOverrides, PathsAreRelativeToTheJobFile) {
    const Job job = read(job_text_, {{"run.dir", "elsewhere"},
                                     {"datasets.math.path", "x/y.jsonl"},
                                     {"adapters.a.init_from", "peft"},
                                     {"model.weights", "/abs/w.h5"}});
    EXPECT_EQ(job.run.dir, folder() + "/elsewhere");
    EXPECT_EQ(job.datasets[0].path, folder() + "/x/y.jsonl");
    EXPECT_EQ(job.datasets[0].eval_path, folder() + "/eval.jsonl");
    EXPECT_EQ(job.adapters[0].init_from, folder() + "/peft");
    EXPECT_EQ(job.model.weights, "/abs/w.h5");
}

TEST_F(JobOverrides, TheLastOneWins) {
    EXPECT_EQ(read(job_text_, {{"run.seed", "1"}, {"run.seed", "2"}}).run.seed, 2U);
}

TEST_F(JobOverrides, EmptyValueIsAnEmptyText) {
    EXPECT_EQ(read(job_text_, {{"datasets.math.eval_path", ""}}).datasets[0].eval_path, "");
}

TEST_F(JobOverrides, WholeSectionsCanBeGiven) {
    const Job job = read(job_text_, {{"logging", "{every_steps: 5}"},
                                     {"adapters", "[{name: only, dataset: v1.0}]"}});
    EXPECT_EQ(job.logging.every_steps, 5);
    ASSERT_EQ(job.adapters.size(), 1U);
    EXPECT_EQ(job.adapters[0].name, "only");
    EXPECT_EQ(index(job.adapters[0].dataset), 1U);
}

TEST_F(JobOverrides, StepsReplaceTheEpochsOfTheFile) {
    const Job job = read(job_text_, {{"defaults.max_steps", "6"}});
    EXPECT_EQ(job.adapters[0].max_steps, 6);
    const Job one = read(job_text_, {{"adapters.a.max_steps", "6"}});
    EXPECT_EQ(one.adapters[0].max_steps, 6);
    EXPECT_EQ(one.adapters[1].num_train_epochs, 3.0);
    EXPECT_FALSE(one.adapters[1].max_steps);
}

TEST_F(JobOverrides, StepsAndEpochsTogetherAreAProblem) {
    expect_only(
        problems(job_text_, {{"defaults.max_steps", "6"}, {"defaults.num_train_epochs", "1"}}),
        "--set defaults.num_train_epochs",
        "defaults.max_steps: is given together with num_train_epochs", "keep one");
}

TEST_F(JobOverrides, FillSectionsThatTheFileLacks) {
    const Job job =
        read("datasets: {d: }\nadapters: [{name: a}]\nrun:\n",
             {{"model.weights", "w.h5"}, {"run.dir", "o"}, {"datasets.d.path", "p.jsonl"}});
    EXPECT_EQ(job.model.weights, folder() + "/w.h5");
    EXPECT_EQ(job.run.dir, folder() + "/o");
    EXPECT_EQ(job.datasets[0].path, folder() + "/p.jsonl");
}

TEST_F(JobOverrides, BadValueIsPlacedAtTheOption) {
    expect_only(problems(job_text_, {{"adapters.a.r", "8.5"}}), "--set adapters.a.r",
                "'8.5' is not a whole number", "at least 1");
    expect_only(problems(job_text_, {{"run.seed", ""}}), "--set run.seed",
                "'' is not a whole number", "whole number");
    expect_only(problems(job_text_, {{"schedule.policy", "foo"}}), "--set schedule.policy",
                "'foo' is not known here", "one of: ");
    expect_only(problems(job_text_, {{"logging", "{every_steps: x}"}}), "--set logging",
                "logging.every_steps: 'x' is not a whole number", "whole number");
    expect_only(problems(job_text_ + "schedule: {policy: foo}\n"), at(10),
                "schedule.policy: 'foo' is not known here", "one of: ");
}

TEST_F(JobOverrides, GoodValueHidesABadOneOfTheFile) {
    EXPECT_EQ(read(minimal_job + "defaults: {r: x}\n", {{"defaults.r", "3"}}).adapters[0].r, 3);
}

TEST_F(JobOverrides, UnknownKeys) {
    expect_only(problems(job_text_, {{"defaults.learnin_rate", "1"}}),
                "--set defaults.learnin_rate", "unknown key 'defaults.learnin_rate'",
                "did you mean 'learning_rate'?");
    expect_only(problems(job_text_, {{"rnu.dir", "1"}}), "--set rnu.dir", "unknown key 'rnu'",
                "did you mean 'run'?");
    expect_only(problems(job_text_, {{"run.dir.x", "1"}}), "--set run.dir.x",
                "unknown key 'run.dir.x'", "did you mean 'dir'?");
}

TEST_F(JobOverrides, UnknownAdapterOrDataset) {
    expect_only(problems(job_text_, {{"adapters.b.r9.r", "1"}}), "--set adapters.b.r9.r",
                "the job has no 'b.r9' in adapters", "did you mean 'b.r8'?");
    expect_only(problems(job_text_, {{"datasets.maths.path", "1"}}), "--set datasets.maths.path",
                "the job has no 'maths' in datasets", "did you mean 'math'?");
}

TEST_F(JobOverrides, NameWithoutKey) {
    expect_only(problems(job_text_, {{"adapters.a", "1"}}), "--set adapters.a",
                "names no key of 'a'", "--set adapters.a.KEY=VALUE");
}

TEST_F(JobOverrides, ValueThatIsNoYaml) {
    const std::vector<Problem> found =
        problems(job_text_, {{"defaults.target_modules", "[q_proj"}});
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].where, "--set defaults.target_modules");
    EXPECT_EQ(found[0].what.find("not valid YAML"), 0U);
    EXPECT_EQ(found[0].hint, "check the quotes and brackets of the value");
}

}  // namespace
}  // namespace loratrain
