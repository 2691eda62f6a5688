#include "train/search/trial_search.h"

#include <cmath>

#include "config/job_yaml.h"
#include "train/search/sweep_records.h"
#include "unit/train/run_folder.h"

namespace loratrain::test {
namespace {

/// Six trials of 9 steps and one adapter that is none, on one dataset; rungs at steps 3 and 9.
class Trials : public ::testing::Test {
  protected:
    Trials() {
        Job& job = folder_.job;
        job.model.weights = "/base.h5";
        job.datasets.resize(1);
        job.datasets[0].name = "data";
        job.datasets[0].path = "/data.jsonl";
        job.adapters.clear();
        for (int i = 0; i < 7; ++i) {
            AdapterJob& adapter = job.adapters.emplace_back();
            adapter.name = i < 6 ? "t" + std::to_string(i) : "other";
            adapter.trial = i < 6;
            adapter.max_steps = 9;
            plan_.adapters.push_back({adapter.name, 9, 9, 9});
            std::filesystem::create_directories(folder_.path("adapters/" + adapter.name));
        }
        job.sweep.emplace();
        job.sweep->scheduler = TrialScheduler::halving;
        job.sweep->rungs = 2;
    }

    AdapterTable table() { return {folder_.job, plan_, datasets_}; }
    static AdapterState& state(AdapterTable& table, int i) { return table[AdapterId{i}].state; }
    static std::vector<AdapterId> ids(std::initializer_list<int> numbers) {
        std::vector<AdapterId> result;
        for (const int n : numbers) result.push_back(AdapterId{n});
        return result;
    }
    /// It has come to `steps` with this eval loss.
    static void train(AdapterTable& table, int i, std::int32_t steps, double loss) {
        state(table, i).steps = steps;
        take_evaluation(loss, 0.5, state(table, i));
    }
    void put_weights(const std::string& name) const {
        folder_.write("adapters/" + name + "/adapter_model.safetensors", "weights");
        folder_.write("adapters/" + name + "/DONE", "9 steps\n");
    }
    bool has_weights(const std::string& name) const {
        return std::filesystem::exists(
            folder_.path("adapters/" + name + "/adapter_model.safetensors"));
    }

    RunFolder folder_;
    Plan plan_;
    std::vector<DatasetInfo> datasets_{{}};
};

TEST_F(Trials, StopAtRungsAndGoOnWhenSure) {
    AdapterTable adapters = table();
    TrialSearch search(folder_.job, adapters);
    EXPECT_EQ(adapters.steps_to_stop(AdapterId{0}), 3);
    EXPECT_EQ(adapters.steps_to_stop(AdapterId{6}), 9) << "no trial";
    for (int i = 0; i < 4; ++i) train(adapters, i, 3, 1.0 + i);
    EXPECT_EQ(search.at_rung(adapters.all()), ids({0, 1, 2, 3}));
    search.arrived(ids({0, 1, 2, 3}));
    EXPECT_EQ(state(adapters, 0).status, AdapterStatus::parked);
    EXPECT_EQ(state(adapters, 2).status, AdapterStatus::pruned);
    EXPECT_FALSE(adapters.claims()[0].unfinished) << "parked trials do not train";
    EXPECT_FALSE(adapters.finished());
    train(adapters, 4, 3, 9.0);
    search.arrived(ids({4}));
    EXPECT_EQ(state(adapters, 0).status, AdapterStatus::waiting);
    EXPECT_EQ(adapters.steps_to_stop(AdapterId{0}), 6);
    EXPECT_EQ(state(adapters, 1).status, AdapterStatus::parked);
    state(adapters, 5).status = AdapterStatus::failed;
    search.judge();
    EXPECT_EQ(state(adapters, 1).status, AdapterStatus::waiting);
}

TEST_F(Trials, AreNotJudgedInTheirWarmup) {
    folder_.job.adapters[0].warmup_steps = 5;
    folder_.job.adapters[1].warmup_steps = 0.5;
    folder_.job.adapters[2].warmup_steps = 2;
    AdapterTable adapters = table();
    EXPECT_EQ(adapters.steps_to_stop(AdapterId{0}), 6);
    EXPECT_EQ(adapters.steps_to_stop(AdapterId{1}), 6);
    EXPECT_EQ(adapters.steps_to_stop(AdapterId{2}), 3);
}

TEST_F(Trials, ThatTieGoByTheirOrderWithAWord) {
    AdapterTable adapters = table();
    TrialSearch search(folder_.job, adapters);
    for (int i = 0; i < 6; ++i) train(adapters, i, 3, i < 2 ? 1.0 : 2.0 + (i > 3 ? 1.0 : 0.0));
    train(adapters, 2, 3, 1.0 + 1e-9);
    search.arrived(ids({0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(state(adapters, 1).status, AdapterStatus::waiting);
    EXPECT_EQ(state(adapters, 2).reason,
              "pruned at rung 1: others hold all places of the next; t0 came to the same value, "
              "and the order of trials decided");
    EXPECT_EQ(state(adapters, 3).reason, "pruned at rung 1: others hold all places of the next");
    state(adapters, 0).status = state(adapters, 1).status = AdapterStatus::done;
    EXPECT_NE(SweepRecords::leaderboard(folder_.job, adapters)
                  .find("the next is as good; the order of trials decided"),
              std::string::npos);
}

TEST_F(Trials, TrainOnWithoutADecisionButNotToTheirEnd) {
    AdapterTable adapters = table();
    TrialSearch search(folder_.job, adapters);
    for (int i = 0; i < 4; ++i) train(adapters, i, 3, 4.0 - i);
    search.arrived(ids({0, 1, 2, 3}));
    EXPECT_EQ(search.speculation(), ids({3, 2})) << "the best first; the others are pruned";
    EXPECT_EQ(adapters.steps_to_stop(AdapterId{3}), 5) << "the last step needs a decision";
    adapters.admit(ids({3, 4, 5}));
    EXPECT_EQ(state(adapters, 3).status, AdapterStatus::running);
    EXPECT_EQ(state(adapters, 2).status, AdapterStatus::parked);
    state(adapters, 3).steps = 8;
    EXPECT_TRUE(search.at_rung(ids({3})).empty());
    EXPECT_EQ(search.speculation(), ids({2}));
    adapters.admit(ids({4, 5}));
    EXPECT_EQ(state(adapters, 3).status, AdapterStatus::parked);
    for (const int i : {4, 5}) train(adapters, i, 3, 0.1 * i);
    search.arrived(ids({4, 5}));
    EXPECT_EQ(state(adapters, 4).status, AdapterStatus::waiting);
    EXPECT_EQ(state(adapters, 3).status, AdapterStatus::pruned);
    EXPECT_EQ(state(adapters, 2).status, AdapterStatus::pruned);
    EXPECT_EQ(objective_of(*folder_.job.sweep, state(adapters, 3)), 1.0);
    folder_.job.sweep->speculate = Speculation::never;
    EXPECT_TRUE(search.speculation().empty());
}

TEST_F(Trials, OnSpeculationMayBeJudgedAtTwoRungsAtOnce) {
    folder_.job.sweep->rungs = 3;
    AdapterTable adapters = table();
    TrialSearch search(folder_.job, adapters);
    for (const int i : {0, 1}) train(adapters, i, 1, 1.0 + i);
    search.arrived(ids({0, 1}));
    EXPECT_EQ(adapters.steps_to_stop(AdapterId{0}), 2);
    for (const int i : {0, 1}) {
        adapters.admit(ids({i}));
        train(adapters, i, 3, 0.9 - 0.1 * i);
        EXPECT_EQ(search.at_rung(ids({i})), ids({i}));
        search.arrived(ids({i}));
    }
    EXPECT_EQ(state(adapters, 0).promoted, 0);
    for (int i = 2; i < 6; ++i) train(adapters, i, 1, 9.0);
    search.arrived(ids({2, 3, 4, 5}));
    EXPECT_EQ(state(adapters, 1).promoted, 2) << "the better one at the second rung";
    EXPECT_EQ(state(adapters, 1).status, AdapterStatus::waiting);
    EXPECT_EQ(state(adapters, 0).status, AdapterStatus::pruned);
    EXPECT_EQ(state(adapters, 0).promoted, 1);
    EXPECT_EQ(state(adapters, 0).rungs.size(), 2U);
}

TEST_F(Trials, OneThatGainsNoMoreKeepsItsPlace) {
    AdapterTable adapters = table();
    TrialSearch search(folder_.job, adapters);
    train(adapters, 0, 2, 0.5);
    state(adapters, 0).status = AdapterStatus::stopped_early;
    for (int i = 1; i < 6; ++i) train(adapters, i, 3, 1.0 + i);
    search.arrived(ids({1, 2, 3, 4, 5}));
    EXPECT_EQ(state(adapters, 1).status, AdapterStatus::waiting);
    for (int i = 2; i < 6; ++i) EXPECT_EQ(state(adapters, i).status, AdapterStatus::pruned) << i;
}

TEST_F(Trials, RungsOfShortTrialsMayLieAtOneStep) {
    folder_.job.sweep->rungs = 4;
    for (AdapterPlan& plan : plan_.adapters) plan.total_steps = 2;
    AdapterTable adapters = table();
    TrialSearch search(folder_.job, adapters);
    for (int i = 0; i < 6; ++i) train(adapters, i, 1, 1.0 + i);
    search.arrived(ids({0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(state(adapters, 0).status, AdapterStatus::waiting);
    EXPECT_EQ(state(adapters, 0).promoted, 3);
    EXPECT_EQ(state(adapters, 1).status, AdapterStatus::pruned);
    EXPECT_EQ(adapters.steps_to_stop(AdapterId{0}), 1);
}

TEST_F(Trials, WhatHasEndedIsRecalledAndRungsAreNotPassedTwice) {
    AdapterTable adapters = table();
    SweepRecords records(folder_.job, adapters);
    train(adapters, 0, 9, 0.25);
    state(adapters, 0).status = AdapterStatus::done;
    train(adapters, 1, 3, 0.75);
    state(adapters, 1).rungs = {0.75};
    state(adapters, 1).status = AdapterStatus::parked;
    adapters.reached(12);
    put_weights("t0");
    records.update(ids({0}));

    AdapterTable older = table();
    train(older, 1, 3, 0.75);
    SweepRecords again(folder_.job, older);
    again.recall();
    EXPECT_EQ(state(older, 0).status, AdapterStatus::done);
    EXPECT_EQ(state(older, 0).last_eval_loss, 0.25);
    EXPECT_EQ(older.round(), 12);
    EXPECT_EQ(state(older, 1).status, AdapterStatus::parked);
    EXPECT_EQ(state(older, 1).rungs, std::vector<double>{0.75});
    EXPECT_EQ(state(older, 1).steps, 3) << "a checkpoint has the rest";
    EXPECT_EQ(state(older, 2).status, AdapterStatus::running);
    EXPECT_TRUE(again.has_recorded(AdapterId{0}));
}

/// It takes steps again that no checkpoint has, and is evaluated there again, unless it is judged.
TEST_F(Trials, AValueAheadOfTheCheckpointIsForgottenADecisionIsNot) {
    AdapterTable adapters = table();
    SweepRecords records(folder_.job, adapters);
    for (const int i : {0, 1}) {
        train(adapters, i, 3, 0.75);
        state(adapters, i).rungs = {0.75};
        state(adapters, i).status = AdapterStatus::parked;
    }
    state(adapters, 1).promoted = 1;
    records.update({});
    AdapterTable older = table();
    train(older, 0, 2, 0.9);
    train(older, 1, 2, 0.9);
    SweepRecords(folder_.job, older).recall();
    EXPECT_TRUE(state(older, 0).rungs.empty());
    EXPECT_EQ(state(older, 0).status, AdapterStatus::waiting);
    EXPECT_EQ(state(older, 1).rungs, std::vector<double>{0.75});
    EXPECT_EQ(state(older, 1).promoted, 1);
    EXPECT_EQ(state(older, 1).status, AdapterStatus::waiting);
}

TEST_F(Trials, OnlyTheBestAreKept) {
    AdapterTable adapters = table();
    SweepRecords records(folder_.job, adapters);
    for (int i = 0; i < 3; ++i) {
        train(adapters, i, 9, 3.0 - i);
        state(adapters, i).status = AdapterStatus::done;
        EXPECT_TRUE(records.is_wanted(AdapterId{i})) << "each is the best so far";
        put_weights("t" + std::to_string(i));
        records.update({AdapterId{i}});
    }
    EXPECT_FALSE(has_weights("t0"));
    EXPECT_FALSE(has_weights("t1"));
    EXPECT_TRUE(has_weights("t2"));
    EXPECT_EQ(folder_.read("adapters/t0/DONE"), "9 steps, not kept\n");
    EXPECT_TRUE(records.is_wanted(AdapterId{6})) << "no trial";
    state(adapters, 3).status = AdapterStatus::pruned;
    state(adapters, 3).rungs = {0.1};
    EXPECT_FALSE(records.is_wanted(AdapterId{3}));
    folder_.job.sweep->exports = SweepExport::all;
    EXPECT_TRUE(records.is_wanted(AdapterId{3}));
    const Job best = read_job(folder_.path("sweep/best.yaml"), {});
    ASSERT_EQ(best.adapters.size(), 1U);
    EXPECT_EQ(best.adapters[0].name, "t2");
    EXPECT_TRUE(best.adapters[0].trial) << "its random numbers are those of the sweep";
    EXPECT_FALSE(best.sweep);
}

TEST_F(Trials, ResultsNameRanksAndReasons) {
    AdapterTable adapters = table();
    train(adapters, 1, 9, 0.5);
    state(adapters, 1).status = AdapterStatus::done;
    state(adapters, 1).rungs = {0.9};
    state(adapters, 2).status = AdapterStatus::failed;
    train(adapters, 3, 3, 0.1);
    state(adapters, 3).status = AdapterStatus::pruned;
    state(adapters, 3).rungs = {0.1};
    state(adapters, 3).reason = "pruned, \"early\"";
    std::vector<AdapterResult> results;
    for (const TrialEntry& entry : trial_results(folder_.job, adapters)) {
        results.push_back({entry.trial, "", {}, entry.result});
    }
    ASSERT_EQ(results.size(), 6U);
    const auto read = trial_results_from_csv(results_csv(folder_.job, results));
    EXPECT_EQ(read.at("t1").rank, 1U);
    EXPECT_EQ(read.at("t1").objective, 0.5);
    EXPECT_EQ(read.at("t1").rung, 2);
    EXPECT_EQ(read.at("t3").rank, 2U) << "ended early, at a rung";
    EXPECT_EQ(read.at("t3").reason, "pruned, \"early\"");
    EXPECT_EQ(read.at("t2").rank, 6U);
    EXPECT_FALSE(read.at("t2").objective);
    EXPECT_TRUE(trial_results_from_csv("").empty());
    EXPECT_TRUE(trial_results_from_csv("name,rank\n\"a,1\n").empty());
}

}  // namespace
}  // namespace loratrain::test
