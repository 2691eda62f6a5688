#include "plan/deploy/plan_within_reach.h"

#include <gtest/gtest.h>

#include "config/model_presets.h"
#include "plan/deploy/layout_player.h"
#include "plan/deploy/search_layout.h"
#include "plan/text/plan_text.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

constexpr std::int32_t few_rounds = 2;

/// Two adapters on GPUs, whose samples of 300 to 1,600 tokens come in batches of 8: the few that
/// are played to compare layouts fill and drain the pipeline, the whole job hardly does.
Case long_job(int ranks) {
    constexpr std::size_t samples = 128;
    Case test = uniform_case(2, ranks, samples, 300, 8);
    for (std::size_t i = 0; i < samples; ++i) {
        test.datasets[0].train[i].tokens += static_cast<std::int32_t>(i * 37 % 64) * 20;
    }
    test.model = *model_preset("llama-3.1-8b");
    test.cluster.backend = BackendKind::cuda;
    test.job.schedule.policy = SchedulePolicy::balanced;
    test.job.schedule.packing = Packing::greedy;
    return test;
}

PlannedJob given_up_below(const Case& test, double least_speed) {
    return plan_job(test.job, test.model, test.datasets, test.cluster, nullptr, least_speed);
}

PlannedJob planned_within_reach(const Case& test, double least_speed, std::int32_t rounds) {
    return plan_within_reach(test.job, test.model, test.datasets, test.cluster, least_speed,
                             rounds);
}

double predicted(const Case& test, const Plan& plan, std::int32_t rounds) {
    return whole_job_speed(test.job, plan, test.datasets, {}, rounds);
}

/// Whether a plan was kept that falls behind as played, as its prediction says.
bool keeps_one(const Case& test, std::int32_t rounds) {
    const PlannedJob whole = given_up_below(test, 0.0);
    const double reached = predicted(test, whole.plan, rounds);
    bool keeps = false;
    for (int percent = 106; percent < 118; ++percent) {
        const double least = 0.01 * percent * reached;
        const PlannedJob rough = given_up_below(test, least);
        if (!rough.report.falls_behind) continue;
        const bool near = predicted(test, rough.plan, rounds) >= within_reach * least;
        const PlannedJob found = planned_within_reach(test, least, rounds);
        EXPECT_EQ(found.report.falls_behind, !near);
        EXPECT_EQ(to_text(found.plan), to_text(near ? whole.plan : rough.plan));
        keeps = keeps || near;
        if (!near) break;
    }
    return keeps;
}

}  // namespace

TEST(PlanWithinReach, KeepsALayoutThatFallsBehindAsPlayedAndIsNearAsPredicted) {
    EXPECT_TRUE(keeps_one(long_job(2), rounds_predicted));
}

/// Each replica by its part of the ranks.
TEST(PlanWithinReach, OfUnlikeReplicasIsJudgedToo) {
    Case test = long_job(4);
    test.job.parallel.pipeline_stages.reset();
    test.job.parallel.deployment = {{2, 1, 1, {}}, {1, 2, 1, {}}};
    const PlannedJob whole = given_up_below(test, 0.0);
    const double reached = predicted(test, whole.plan, few_rounds);
    EXPECT_EQ(to_text(planned_within_reach(test, 0.5 * reached, few_rounds).plan),
              to_text(whole.plan));
    EXPECT_TRUE(planned_within_reach(test, 2.0 * reached, few_rounds).report.falls_behind);
}

}  // namespace loratrain::plan_test
