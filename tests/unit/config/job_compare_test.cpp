#include <gtest/gtest.h>

#include <functional>

#include "unit/config/job_files.h"

namespace loratrain {
namespace {

using Lines = std::vector<std::string>;

Job two_adapters() {
    Job job;
    job.model = {.weights = "/base.h5",
                 .precision = Precision::fp32,
                 .base_model_name_or_path = "org/model"};
    job.run.dir = "/out";
    job.datasets.resize(2);
    job.datasets[0].name = "math";
    job.datasets[0].path = "/math.jsonl";
    job.datasets[1].name = "code";
    job.datasets[1].path = "/code.jsonl";
    job.adapters.resize(2);
    job.adapters[0].name = "a";
    job.adapters[1].name = "b.r";
    job.adapters[1].dataset = DatasetId{1};
    job.adapters[1].max_steps = 10;
    return job;
}

JobDifference difference(const std::function<void(Job&)>& change) {
    Job job = two_adapters();
    const std::string before = to_yaml(job);
    change(job);
    return compare_jobs(before, to_yaml(job), "job.yaml");
}

void expect_harmless(const std::function<void(Job&)>& change, const Lines& lines) {
    const JobDifference found = difference(change);
    EXPECT_EQ(found.harmless, lines);
    EXPECT_EQ(found.harmful, Lines{});
}

void expect_harmful(const std::function<void(Job&)>& change, const Lines& lines,
                    const Lines& harmless = {}) {
    const JobDifference found = difference(change);
    EXPECT_EQ(found.harmful, lines);
    EXPECT_EQ(found.harmless, harmless);
}

TEST(JobCompare, EqualJobsDoNotDiffer) {
    expect_harmless([](Job&) {}, {});
}

TEST(JobCompare, WhereAndHowTheRunGoesIsHarmless) {
    expect_harmless([](Job& job) { job.run.dir = "/new"; }, {"run.dir: /out -> /new"});
    expect_harmless([](Job& job) { job.run.max_hours = 7.5; }, {"run.max_hours: 0 -> 7.5"});
    expect_harmless([](Job& job) { job.run.peer_timeout = 5; }, {"run.peer_timeout: 30 -> 5"});
    expect_harmless(
        [](Job& job) {
            job.parallel = {2, 512, Recompute::layer, {}};
        },
        {"parallel.pipeline_stages: auto -> 2", "parallel.microbatch_tokens: auto -> 512",
         "parallel.recompute: auto -> layer"});
    expect_harmless(
        [](Job& job) {
            job.parallel.offload = {Offload::Kind::some, 3};
        },
        {"parallel.offload: none -> {layers: 3}"});
    expect_harmless(
        [](Job& job) {
            job.parallel.deployment = {{2, 1, 1}, {1, 3, 2}};
        },
        {"parallel.deployment: pipeline -> [{tp: 2, pp: 1, count: 1, microbatch_tokens: auto, "
         "recompute: auto}, "
         "{tp: 1, pp: 3, count: 2, microbatch_tokens: auto, recompute: auto}]"});
    expect_harmless(
        [](Job& job) {
            job.checkpoint = {1, 2, 3};
        },
        {"checkpoint.every_steps: 200 -> 1", "checkpoint.every_minutes: 30 -> 2",
         "checkpoint.keep: 2 -> 3"});
    expect_harmless([](Job& job) { job.eval.every_steps = 5; }, {"eval.every_steps: 0 -> 5"});
    expect_harmless([](Job& job) { job.logging.every_steps = 5; }, {"logging.every_steps: 1 -> 5"});
    expect_harmless([](Job& job) { job.adapters[1].priority = 4; },
                    {"adapters.b.r.priority: 0 -> 4"});
}

TEST(JobCompare, AKeyThatIsNewInThisVersionIsJudgedLikeAChange) {
    const std::string now = to_yaml(two_adapters());
    const auto without = [&](const std::string& line) {
        std::string before = now;
        before.erase(before.find(line), line.size());
        return compare_jobs(before, now, "job.yaml");
    };
    const JobDifference timeout = without("  peer_timeout: 30\n");
    EXPECT_EQ(timeout.harmless, Lines{"run.peer_timeout: not set -> 30"});
    EXPECT_EQ(timeout.harmful, Lines{});
    const JobDifference recompute = without("  recompute: auto\n");
    EXPECT_EQ(recompute.harmless, Lines{"parallel.recompute: not set -> auto"});
    const JobDifference seed = without("  seed: 42\n");
    EXPECT_EQ(seed.harmful, Lines{"run.seed: not set -> 42"});
}

TEST(JobCompare, LongerTrainingIsHarmlessShorterIsNot) {
    expect_harmless([](Job& job) { job.adapters[1].max_steps = 100; },
                    {"adapters.b.r.max_steps: 10 -> 100"});
    expect_harmful([](Job& job) { job.adapters[1].max_steps = 9; },
                   {"adapters.b.r.max_steps: 10 -> 9"});
    expect_harmless([](Job& job) { job.adapters[0].num_train_epochs = 1.5; },
                    {"adapters.a.num_train_epochs: 1 -> 1.5"});
    expect_harmful([](Job& job) { job.adapters[0].num_train_epochs = 0.5; },
                   {"adapters.a.num_train_epochs: 1 -> 0.5"});
}

TEST(JobCompare, WorkersKeepNothingOfAdaptersThatHaveEnded) {
    expect_harmful(
        [](Job& job) {
            job.parallel.assignment = Assignment::each;
            job.adapters[1].max_steps = 100;
        },
        {"adapters.b.r.max_steps: 10 -> 100"}, {"parallel.assignment: joint -> each"});
}

/// As of slurm/cpu.sbatch, which sets the backend, and mpirun, where the job leaves it to auto.
TEST(JobCompare, AutoIsTheBackendThatItComesTo) {
    Job job = two_adapters();
    const std::string by_itself = to_yaml(job);
    job.run.backend = BackendKind::cpu;
    const std::string cpu = to_yaml(job);
    const auto harmful = [](const std::string& before, const std::string& now,
                            const BackendsOfAuto& backends) {
        return compare_jobs(before, now, "job.yaml", backends).harmful;
    };
    EXPECT_EQ(harmful(cpu, by_itself, {"cpu", "cpu"}), Lines{});
    EXPECT_EQ(harmful(by_itself, cpu, {"cpu", "cpu"}), Lines{});
    EXPECT_EQ(harmful(cpu, by_itself, {"cpu", "cuda"}), Lines{"run.backend: cpu -> auto"});
    EXPECT_EQ(harmful(by_itself, cpu, {"cuda", "cpu"}), Lines{"run.backend: auto -> cpu"});
    EXPECT_EQ(harmful(by_itself, cpu, {}), Lines{"run.backend: auto -> cpu"});
}

TEST(JobCompare, LinksMayComeAndGo) {
    expect_harmless([](Job& job) { job.cluster.between_hosts.microseconds = 5.0; },
                    {"cluster.between_hosts: not set -> {microseconds: 5}"});
}

TEST(JobCompare, StepsInPlaceOfEpochsAreHarmful) {
    expect_harmful(
        [](Job& job) { job.adapters[0].max_steps = 100; },
        {"adapters.a.num_train_epochs: 1 -> not set", "adapters.a.max_steps: not set -> 100"});
}

TEST(JobCompare, WhereWeightsLieChangesNothing) {
    expect_harmless([](Job& job) { job.model.residency.kind = Residency::Kind::stream; },
                    {"model.residency: auto -> stream"});
    expect_harmless(
        [](Job& job) {
            job.model.residency = {Residency::Kind::some, 3};
        },
        {"model.residency: auto -> {resident_layers: 3}"});
}

TEST(JobCompare, WhatChangesTheResultIsHarmful) {
    expect_harmful([](Job& job) { job.model.weights = "/x.h5"; },
                   {"model.weights: /base.h5 -> /x.h5"});
    expect_harmful([](Job& job) { job.model.precision = Precision::bf16; },
                   {"model.precision: fp32 -> bf16"});
    expect_harmful([](Job& job) { job.run.seed = 1; }, {"run.seed: 42 -> 1"});
    expect_harmful([](Job& job) { job.run.backend = BackendKind::cuda; },
                   {"run.backend: auto -> cuda"});
    expect_harmful([](Job& job) { job.datasets[0].eval_path = "/e.jsonl"; },
                   {"datasets.math.eval_path: '' -> /e.jsonl"});
    expect_harmful([](Job& job) { job.datasets[0].eval_split.samples = 3; },
                   {"datasets.math.eval_split: not set -> 3"});
    expect_harmful([](Job& job) { job.datasets[1].shuffle = false; },
                   {"datasets.code.shuffle: true -> false"});
    expect_harmful([](Job& job) { job.adapters[0].r = 3; }, {"adapters.a.r: 16 -> 3"});
    expect_harmful([](Job& job) { job.adapters[0].learning_rate = 1e-5; },
                   {"adapters.a.learning_rate: 2.0e-04 -> 1.0e-05"});
    expect_harmful([](Job& job) { job.adapters[0].warmup_steps = 3; },
                   {"adapters.a.warmup_steps: 0 -> 3"});
    expect_harmful(
        [](Job& job) { job.adapters[1].targets = {true, true, false, false, false, false, false}; },
        {"adapters.b.r.target_modules: all-linear -> [q_proj, k_proj]"});
    expect_harmful([](Job& job) { job.adapters[0].dataset = DatasetId{1}; },
                   {"adapters.a.dataset: math -> code"});
}

TEST(JobCompare, AdaptersAddedAtTheEndAreHarmless) {
    const auto copy = [](const Job& job) {
        AdapterJob adapter = job.adapters[0];
        adapter.name += "2";
        return adapter;
    };
    expect_harmless([&](Job& job) { job.adapters.push_back(copy(job)); }, {"adapters.a2: added"});
    expect_harmful([&](Job& job) { job.adapters.insert(job.adapters.begin() + 1, copy(job)); },
                   {"adapters.a2: added, not at the end"});
    expect_harmful([&](Job& job) { job.adapters = {copy(job)}; },
                   {"adapters.a: removed", "adapters.b.r: removed"}, {"adapters.a2: added"});
}

TEST(JobCompare, RemovedAdaptersAreHarmful) {
    expect_harmful([](Job& job) { job.adapters.erase(job.adapters.begin()); },
                   {"adapters.a: removed"});
}

TEST(JobCompare, DatasetsAddedAtTheEndAreHarmless) {
    const auto add = [](Job& job, std::ptrdiff_t at) {
        DatasetJob copy = job.datasets[0];
        copy.name += "2";
        job.datasets.insert(job.datasets.begin() + at, copy);
        if (at <= 1) job.adapters[1].dataset = DatasetId{2};
    };
    expect_harmless([&](Job& job) { add(job, 2); }, {"datasets.math2: added"});
    expect_harmful([&](Job& job) { add(job, 1); }, {"datasets.math2: added, not at the end"});
}

TEST(JobCompare, RemovedDatasetsAreHarmful) {
    expect_harmful(
        [](Job& job) {
            job.datasets.pop_back();
            job.adapters[1].dataset = DatasetId{0};
        },
        {"adapters.b.r.dataset: code -> math", "datasets.code: removed"});
}

TEST(JobCompare, AnotherOrderIsHarmful) {
    expect_harmful([](Job& job) { std::swap(job.adapters[0], job.adapters[1]); },
                   {"adapters: order a, b.r -> b.r, a"});
    expect_harmful(
        [](Job& job) {
            std::swap(job.datasets[0], job.datasets[1]);
            job.adapters[0].dataset = DatasetId{1};
            job.adapters[1].dataset = DatasetId{0};
        },
        {"datasets: order math, code -> code, math"});
}

TEST(JobCompare, AProgramOfRewardsMayChangeAndWhatItRewardsMayNot) {
    const auto differ = [](const std::function<void(Job&)>& change) {
        Job job = two_adapters();
        job.adapters[0].rewards.program = "judge";
        const std::string before = to_yaml(job);
        change(job);
        return compare_jobs(before, to_yaml(job), "job.yaml");
    };
    const JobDifference program = differ([](Job& job) {
        job.adapters[0].rewards.program = "other";
        job.adapters[0].rewards.timeout = 90;
    });
    EXPECT_EQ(program.harmful, Lines{});
    EXPECT_EQ(program.harmless, (Lines{"adapters.a.rewards.program: judge -> other",
                                       "adapters.a.rewards.timeout: 60 -> 90"}));
    const JobDifference size = differ([](Job& job) { job.adapters[0].rewards.group_size = 4; });
    EXPECT_EQ(size.harmful, Lines{"adapters.a.rewards.group_size: 8 -> 4"});
    const JobDifference none = differ([](Job& job) { job.adapters[0].rewards = {}; });
    EXPECT_FALSE(none.harmful.empty());
}

TEST(JobCompare, ADatasetInTheRunDirectoryMovesWithIt) {
    Job job = two_adapters();
    job.datasets[1].path = "/out/rollouts/b.r/";
    const std::string before = to_yaml(job);
    job.run.dir = "/new";
    job.datasets[1].path = "/new/rollouts/b.r/";
    const JobDifference moved = compare_jobs(before, to_yaml(job), "job.yaml");
    EXPECT_EQ(moved.harmful, Lines{});
    EXPECT_EQ(moved.harmless, Lines{"run.dir: /out -> /new"});
    job.datasets[1].path = "/new/rollouts/c/";
    EXPECT_EQ(compare_jobs(before, to_yaml(job), "job.yaml").harmful,
              Lines{"datasets.code.path: <run.dir>/rollouts/b.r/ -> <run.dir>/rollouts/c/"});
}

TEST(JobCompare, NameOfTheBaseModelIsHarmless) {
    const JobDifference found =
        difference([](Job& job) { job.model.base_model_name_or_path = "org/m"; });
    EXPECT_EQ(found.harmful, Lines{});
    EXPECT_EQ(found.harmless.size(), 1U);
}

TEST(JobCompare, BothKindsAreListedAtOnce) {
    const JobDifference found = difference([](Job& job) {
        job.run.dir = "/x";
        job.adapters[0].r = 1;
    });
    EXPECT_EQ(found.harmless, Lines{"run.dir: /out -> /x"});
    EXPECT_EQ(found.harmful, Lines{"adapters.a.r: 16 -> 1"});
}

TEST(JobCompare, TextThatIsNoJobIsADamagedFile) {
    for (const char* text : {"{", "", "- a\n"}) {
        try {
            compare_jobs(text, to_yaml(two_adapters()), "out/resolved.yaml");
            FAIL() << "did not throw";
        } catch (const InputError& error) {
            expect_only(error.problems(), "out/resolved.yaml", "is damaged: it holds no job",
                        "remove the file");
        }
    }
}

}  // namespace
}  // namespace loratrain
