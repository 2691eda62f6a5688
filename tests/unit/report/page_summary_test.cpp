#include <gtest/gtest.h>

#include "report/page_parts.h"

namespace loratrain {
namespace {

RunRecord run_of_two() {
    RunRecord run;
    run.job.datasets.resize(1);
    run.job.adapters.resize(2);
    run.job.adapters[0].name = "planned";
    run.job.adapters[1].name = "added";
    for (const int i : {0, 1}) {
        run.results.push_back({static_cast<AdapterId>(i), "RUNNING", {}});
        run.results.back().summary.steps = 3 + i;
    }
    return run;
}

/// Whether the table has this cell.
bool shows(const RunRecord& run, const std::string& cell) {
    return report::adapters(run).find(">" + cell + "</td>") != std::string::npos;
}

TEST(AdapterTable, StepsOfThePlan) {
    RunRecord run = run_of_two();
    EXPECT_TRUE(shows(run, "3"));
    run.plan.emplace();
    run.plan->adapters = {{"planned", 8, 2, 20}, {"added", 8, 2, 30}};
    EXPECT_TRUE(shows(run, "3 / 20"));
    EXPECT_TRUE(shows(run, "4 / 30"));
}

TEST(AdapterTable, KeysOfAdapters) {
    RunRecord run = run_of_two();
    AdapterJob& first = run.job.adapters[0];
    first.use_rslora = true;
    first.loraplus_lr_ratio = 16.0;
    first.lora_dropout = 0.05;
    first.global_batch_size = 24;
    first.targets = {true, false, true, false, false, false, false};
    AdapterJob& second = run.job.adapters[1];
    second.init_lora_weights = Initial::pissa;
    second.form = form_of(second);
    for (const char* cell :
         {"rsLoRA, LoRA+ 16", "0.05", "24", "q_proj v_proj", "PiSSA", "all-linear"}) {
        EXPECT_TRUE(shows(run, cell)) << cell;
    }
    second.use_dora = true;
    second.init_lora_weights = Initial::uniform;
    second.form = form_of(second);
    EXPECT_TRUE(shows(run, "DoRA"));
    second.trainable_token_indices = {7, 250};
    second.form = form_of(second);
    EXPECT_TRUE(shows(run, "DoRA, 2 rows of tokens"));
}

TEST(AdapterTable, PlanThatDoesNotKnowAnAddedAdapterYet) {
    RunRecord run = run_of_two();
    run.plan.emplace();
    run.plan->adapters = {{"planned", 8, 2, 20}};
    EXPECT_TRUE(shows(run, "3 / 20"));
    EXPECT_TRUE(shows(run, "4"));
}

}  // namespace
}  // namespace loratrain
