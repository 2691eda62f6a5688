#include "report/sweep_analysis.h"

#include <gtest/gtest.h>

#include "report/page_parts.h"

namespace loratrain {
namespace {

/// Trials of r 2 and 4 and rates 0.1 and 0.2: the loss is r / 2 + rate.
RunRecord swept_run() {
    RunRecord run;
    run.job.sweep.emplace();
    run.job.datasets.resize(1);
    run.job.datasets[0].name = "<data>";
    std::size_t rank = 0;
    for (const int r : {2, 4}) {
        for (const double rate : {0.1, 0.2}) {
            AdapterJob& adapter = run.job.adapters.emplace_back();
            adapter.name = "r" + std::to_string(r);
            adapter.trial = true;
            adapter.r = r;
            adapter.lora_alpha = 2.0 * r;
            adapter.learning_rate = rate;
            const auto id = static_cast<AdapterId>(rank);
            run.results.push_back({id, "DONE", {}, TrialResult{++rank, r / 2.0 + rate, 1, ""}});
            run.metrics.emplace_back();
        }
    }
    return run;
}

TEST(SweepAnalysis, KeysThatVaryAndWhatTheyMatter) {
    const RunRecord run = swept_run();
    const SweptTrials sweep = analyse_sweep(run, DatasetId{0});
    ASSERT_EQ(sweep.keys.size(), 2U) << "the scaling is the same everywhere";
    EXPECT_EQ(sweep.keys[0].name, "r");
    EXPECT_EQ(sweep.keys[0].values, (std::vector<std::string>{"2", "4"}));
    EXPECT_EQ(sweep.keys[0].of_trial, (std::vector<std::size_t>{0, 0, 1, 1}));
    // Variances of the two keys: 4 * 0.5^2 and 4 * 0.05^2 of their sum.
    EXPECT_NEAR(*sweep.keys[0].eta_squared, 1.0 / 1.01, 1e-12);
    EXPECT_NEAR(*sweep.keys[1].eta_squared, 0.01 / 1.01, 1e-12);
    EXPECT_NEAR(sweep.keys[0].spread_through_best.value(), 1.0, 1e-12);
    EXPECT_NEAR(sweep.keys[1].spread_through_best.value(), 0.1, 1e-12);
}

/// Also where the job that is written leaves out the usual value.
TEST(SweepAnalysis, EveryKeyThatDiffersIsCompared) {
    RunRecord run = swept_run();
    run.job.adapters[1].loraplus_lr_ratio = 16.0;
    run.job.adapters[2].max_steps = 7;
    const SweptTrials sweep = analyse_sweep(run, DatasetId{0});
    ASSERT_EQ(sweep.keys.size(), 4U);
    EXPECT_EQ(sweep.keys[2].name, "loraplus_lr_ratio");
    EXPECT_EQ(sweep.keys[2].values, (std::vector<std::string>{"1", "16"}));
    EXPECT_EQ(sweep.keys[3].name, "length");
    EXPECT_EQ(sweep.keys[3].values, (std::vector<std::string>{"1 epochs", "7 steps"}));
}

TEST(SweepAnalysis, TrialsEndedEarlyDoNotCompare) {
    RunRecord run = swept_run();
    for (std::size_t t = 2; t < 4; ++t) run.results[t].status = "PRUNED";
    const SweptTrials sweep = analyse_sweep(run, DatasetId{0});
    EXPECT_EQ(sweep.complete, 2U);
    EXPECT_FALSE(sweep.keys[0].eta_squared) << "both have one rank";
    EXPECT_FALSE(sweep.keys[0].spread_through_best);
    EXPECT_FALSE(sweep.keys[1].eta_squared) << "one trial for each rate";
    EXPECT_NEAR(sweep.keys[1].spread_through_best.value(), 0.1, 1e-12);
    EXPECT_NE(report::sweep(run).find("How much each key matters"), std::string::npos);
}

TEST(SweepPage, OneTrialHasNoImportance) {
    RunRecord run = swept_run();
    for (std::size_t t = 1; t < 4; ++t) run.results[t].status = "PRUNED";
    EXPECT_EQ(report::sweep(run).find("How much each key matters"), std::string::npos);
    EXPECT_EQ(report::sweep(run).find("eta squared"), std::string::npos);
}

TEST(SweepPage, HasOneLinePerTrialAndEscapesNames) {
    RunRecord run = swept_run();
    run.results[3].trial->objective.reset();
    const std::string page = report::sweep(run);
    std::size_t lines = 0;
    for (std::size_t at = 0; (at = page.find("<path class=\"trial", at)) != std::string::npos;
         ++at) {
        ++lines;
    }
    EXPECT_EQ(lines, 3U) << "one has no objective";
    EXPECT_NE(page.find("&lt;data&gt;"), std::string::npos);
    run.job.sweep.reset();
    EXPECT_EQ(report::sweep(run), "");
}

}  // namespace
}  // namespace loratrain
