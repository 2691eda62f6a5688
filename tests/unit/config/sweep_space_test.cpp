#include "config/sweep_space.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "config/inbox_yaml.h"
#include "unit/config/job_files.h"

namespace loratrain {
namespace {

class Sweep : public JobFiles {
  protected:
    /// A job of nine lines with the entries of `sweep` from the tenth on.
    Job sweep(const std::string& entries) const { return read(text(entries)); }
    std::vector<Problem> bad(const std::string& entries) const { return problems(text(entries)); }
    static std::string text(const std::string& entries) {
        return "model: {weights: base.h5}\n"
               "run: {dir: out, seed: 5}\n"
               "datasets:\n"
               "  math: {path: math.jsonl, eval_split: 5}\n"
               "defaults: {r: 4}\n"
               "adapters:\n"
               "  - {name: first}\n"
               "sweep:\n"
               "  top_k: 3\n" +
               entries;
    }
    static std::vector<std::string> names(const Job& job) {
        std::vector<std::string> result;
        for (const AdapterJob& adapter : job.adapters) result.push_back(adapter.name);
        return result;
    }
};

TEST_F(Sweep, GridIsEveryCombinationInTheOrderWritten) {
    const Job job = sweep("  space: {r: [8, 16], learning_rate: [2.0e-5, 4.0e-4], max_steps: 3}\n");
    EXPECT_EQ(names(job), (std::vector<std::string>{"first", "r8-lr2e-05", "r8-lr4e-04",
                                                    "r16-lr2e-05", "r16-lr4e-04"}));
    EXPECT_FALSE(job.adapters[0].trial);
    EXPECT_TRUE(job.adapters[3].trial);
    EXPECT_EQ(job.adapters[3].r, 16);
    EXPECT_EQ(job.adapters[3].learning_rate, 2e-5);
    EXPECT_EQ(job.adapters[3].max_steps, 3);
    EXPECT_EQ(job.adapters[3].random_name(), job.adapters[1].random_name());
    ASSERT_TRUE(job.sweep);
    EXPECT_EQ(job.sweep->top_k, 3);
}

TEST_F(Sweep, MultiplesOfTheRankAndKeysThatGoTogether) {
    const Job job = sweep(
        "  name: s\n"
        "  space:\n"
        "    lora_alpha: {times_r: [0.25, 2]}\n"
        "    together: [{r: 8, global_batch_size: 1}, {global_batch_size: 2}]\n"
        "    target_modules: [all-linear, [q_proj, v_proj]]\n");
    ASSERT_EQ(job.adapters.size(), 9U);
    EXPECT_EQ(job.adapters[1].name, "s-a2-r8-b1-all-linear");
    EXPECT_EQ(job.adapters[1].lora_alpha, 2.0);
    EXPECT_EQ(job.adapters[4].name, "s-a1-b2-qv");
    EXPECT_EQ(job.adapters[4].lora_alpha, 1.0) << "r 4 is that of the defaults";
    EXPECT_EQ(job.adapters[8].lora_alpha, 8.0);
    EXPECT_FALSE(job.adapters[8].targets_linear(Linear::k));
}

TEST_F(Sweep, DrawsAreWithinRangesDifferentAndRepeat) {
    const std::string space =
        "  method: random\n"
        "  configurations: 40\n"
        "  space:\n"
        "    r: {min: 4, max: 6}\n"
        "    learning_rate: {min: 1.0e-5, max: 1.0e-2, scale: log}\n";
    const Job job = sweep(space);
    ASSERT_EQ(job.adapters.size(), 41U);
    std::set<int> ranks;
    int below = 0;
    for (std::size_t i = 1; i < job.adapters.size(); ++i) {
        ranks.insert(job.adapters[i].r);
        EXPECT_GE(job.adapters[i].learning_rate, 1e-5);
        EXPECT_LE(job.adapters[i].learning_rate, 1e-2);
        below += job.adapters[i].learning_rate < 3.1623e-4 ? 1 : 0;
    }
    EXPECT_EQ(ranks, (std::set<int>{4, 5, 6}));
    EXPECT_NEAR(below, 20, 10) << "half of a logarithmic range";
    EXPECT_EQ(names(sweep(space)), names(job));
    EXPECT_NE(names(sweep(space + "  seed: 6\n")), names(job));
    const Job fewer = read(text(space), {{"sweep.configurations", "7"}});
    std::vector<std::string> first = names(job);
    first.resize(8);
    EXPECT_EQ(names(fewer), first) << "a draw depends on the seed, the trial and the key alone";
}

TEST_F(Sweep, ListedTrialsHaveTheirOwnKeysAndMayHaveNames) {
    const Job job = sweep(
        "  method: list\n"
        "  configurations: [{r: 8}, {r: 16, lora_alpha: {times_r: 2}}, {name: own, r: 2}]\n");
    EXPECT_EQ(names(job), (std::vector<std::string>{"first", "r8", "r16-a32", "own"}));
    EXPECT_EQ(job.adapters[2].lora_alpha, 32.0);
}

TEST_F(Sweep, ShardsPartTheTrials) {
    const std::string space = "  space: {r: [1, 2, 3, 5, 6]}\n";
    const auto shard = [&](const char* part) {
        return names(read(text(space), {{"sweep.shard", part}}));
    };
    EXPECT_EQ(shard("0/2"), (std::vector<std::string>{"first", "r1", "r3", "r6"}));
    EXPECT_EQ(shard("1/2"), (std::vector<std::string>{"first", "r2", "r5"}));
    for (const char* wrong : {"2/2", "1", "1/", "-1/2", "a/b", "1/2/3"}) {
        expect_only(bad(space + "  shard: '" + wrong + "'\n"), at(11),
                    std::string("sweep.shard: '") + wrong + "' is not a part of the trials", "0/4");
    }
}

TEST_F(Sweep, CommandLineReachesIntoTheSpace) {
    const Job job = read(text("  space: {r: [8, 16]}\n"), {{"sweep.space.r", "[2, 3]"}});
    EXPECT_EQ(names(job), (std::vector<std::string>{"first", "r2", "r3"}));
}

TEST_F(Sweep, ResolvedJobReadsBackWithItsTrials) {
    const Job job = sweep("  space: {r: [8, 16]}\n  scheduler: halving\n  budget_hours: 2\n");
    const std::string resolved = to_yaml(job);
    const Job again = read(resolved);
    EXPECT_EQ(to_yaml(again), resolved);
    EXPECT_EQ(names(again), names(job));
    ASSERT_TRUE(again.sweep);
    EXPECT_EQ(again.sweep->scheduler, TrialScheduler::halving);
    EXPECT_TRUE(again.adapters[2].trial);
}

TEST_F(Sweep, WhatMayChangeOnContinuing) {
    const std::string space = "  space: {r: [8, 16], num_train_epochs: 1}\n";
    const std::string before = to_yaml(sweep(space));
    const auto harmful = [&](const std::string& now) {
        return compare_jobs(before, to_yaml(sweep(now)), "before.yaml").harmful;
    };
    EXPECT_TRUE(harmful(space + "  export: all\n  budget_hours: 1\n").empty());
    EXPECT_EQ(harmful(space + "  scheduler: asha\n").size(), 1U);
    EXPECT_EQ(harmful("  space: {r: [8, 16], num_train_epochs: 2}\n").size(), 2U)
        << "weights of trials that have ended are not kept";
}

TEST_F(Sweep, BadSpacesHaveOneMessageEach) {
    expect_only(bad("  space: {r: [], learning_rate: [1.0e-4]}\n"), at(10),
                "sweep.space.r: is an empty list", "at least one");
    expect_only(bad("  space: {rank: [8, 16], learning_rate: [1.0e-4, 1.0e-3]}\n"), at(10),
                "unknown key 'sweep.space.rank'", "r");
    expect_only(bad("  method: random\n  configurations: 3\n  space: {r: {min: 8, max: 8}}\n"),
                at(12), "sweep.space.r.min: 8 is not below max, 8", "smaller");
    expect_only(bad("  method: random\n  configurations: 3\n"
                    "  space: {learning_rate: {min: 0, max: 1, scale: log}}\n"),
                at(12), "sweep.space.learning_rate.min: 0 has no logarithm", "linear");
    expect_only(bad("  space: {r: {min: 8, max: 16}}\n"), at(10),
                "sweep.space.r.min: a range has no grid", "random");
    expect_only(bad("  space: {r: [8, 16, 8]}\n"), at(10), "sweep.space.r: 8 is given twice",
                "once");
    expect_only(bad("  space: {r: [8, 0], learning_rate: [1.0e-4, 1.0e-3]}\n"), at(10),
                "sweep.space.r: 0 is out of range", "at least 1");
    expect_only(bad("  method: list\n  configurations: [{name: first}]\n"), at(11),
                "sweep.configurations.name: 'first' is used twice", at(7));
    expect_only(bad("  space: {}\n"), at(10), "sweep.space: is empty", "keys");
    expect_only(bad("  objective: eval_loss\n"), at(8), "sweep.space: is missing", "what to try");
    expect_only(bad("  space: {r: [8]}\n  reference: frist\n"), at(8),
                "sweep.reference: 'frist' is not an adapter of this job", "first");
    expect_only(bad("  method: random\n  configurations: 7\n  space: {r: [8, 16]}\n"), at(8),
                "sweep.configurations: 7 are wanted, but the space has only 2 different ones",
                "fewer");
    std::string digits = "  space: {";
    for (const char* key : {"r", "seed", "priority", "global_batch_size", "max_steps",
                            "weight_decay", "learning_rate", "lora_alpha", "warmup_steps"}) {
        digits += cat(key, ": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], ");
    }
    expect_only(bad(digits + "}\n"), at(8), "sweep: 1000000000 configurations are too many",
                "10000");
}

TEST_F(Sweep, AllProblemsAreReportedAtOnce) {
    const auto found = bad("  space: {r: [], nothing: [1]}\n  objective: loss\n  reference: a\n");
    EXPECT_EQ(found.size(), 2U) << "the empty list hides what trials would say";
}

TEST_F(Sweep, TrialsNeedDataToBeRankedBy) {
    expect_only(problems("model: {weights: base.h5}\nrun: {dir: out}\n"
                         "datasets: {math: {path: m.jsonl}}\nsweep: {space: {r: [8, 16]}}\n"),
                at(4), "sweep: dataset 'math' has no data to rank its trials by", "eval_path");
}

TEST_F(Sweep, KtoHasNoExactMatchToBeRankedBy) {
    const std::string kto = "  space: {loss: kto, r: [8, 16]}\n";
    expect_only(bad(kto + "  objective: exact_match\n"), at(8),
                "sweep.objective: trials of kto have no exact_match", "eval_loss");
    EXPECT_EQ(sweep(kto + "  objective: eval_loss\n").adapters.size(), 3U);
    EXPECT_EQ(sweep("  space: {loss: dpo, r: [8]}\n  objective: exact_match\n").adapters.size(),
              2U);
}

TEST_F(Sweep, InboxAddsASpaceToASweepOnly) {
    const Job job = sweep("  space: {r: [8, 16]}\n");
    const JobAdditions more = read_inbox("sweep: {space: {r: [32, 64]}}", "more.yaml", job);
    ASSERT_EQ(more.adapters.size(), 2U);
    EXPECT_EQ(more.adapters[1].name, "r64");
    EXPECT_TRUE(more.adapters[1].trial);
    EXPECT_THROW(read_inbox("sweep: {space: {r: [16, 64]}}", "more.yaml", job), InputError)
        << "r16 is there";
    EXPECT_THROW(read_inbox("sweep: {space: {r: [32]}}", "more.yaml", read(minimal_job)),
                 InputError);
}

}  // namespace
}  // namespace loratrain
