#include "plan/deploy/layout_player.h"

#include <gtest/gtest.h>

#include <set>

#include "config/model_presets.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// Two adapters on four GPUs, whose samples of 300 to 1,600 tokens come in batches of 8.
Case played_case() {
    Case test = uniform_case(2, 4, 64, 300, 8);
    for (std::size_t i = 0; i < 64; ++i) {
        test.datasets[0].train[i].tokens += static_cast<std::int32_t>(i * 37 % 64) * 20;
    }
    test.model = *model_preset("llama-3.1-8b");
    test.cluster.backend = BackendKind::cuda;
    test.job.schedule.policy = SchedulePolicy::balanced;
    test.job.schedule.packing = Packing::greedy;
    return test;
}

/// Layouts some of which are packed alike: by recomputation, size, depth and split.
std::vector<Plan> unlike_layouts(const Case& test) {
    std::vector<Plan> plans(6, test.plan());
    const auto replica = [&](std::size_t i) -> ReplicaPlan& { return plans[i].replicas.front(); };
    replica(1).recompute = Recompute::layer;
    replica(2).recompute = Recompute::layer;
    replica(2).stages.front().kept_layers = 3;
    replica(3).microbatch_tokens /= 2;
    replica(4).max_in_flight += 2;
    replica(5).stages[0].layer_count -= 2;
    for (std::size_t s = 1; s < replica(5).stages.size(); ++s) {
        replica(5).stages[s].first_layer -= 2;
    }
    replica(5).stages.back().layer_count += 2;
    return plans;
}

}  // namespace

TEST(LayoutPlayer, SaysTheSameWhateverWasPlayedBefore) {
    const Case test = played_case();
    const std::vector<Plan> plans = unlike_layouts(test);
    const CostModel& costs = plans.front().costs;
    LayoutPlayer player(test.job, test.datasets, costs);
    std::set<double> speeds;
    for (const bool rough : {true, false, true}) {
        for (const Plan& plan : plans) {
            LayoutPlayer fresh(test.job, test.datasets, costs);
            const double speed = player.speed(plan, rough);
            EXPECT_EQ(speed, fresh.speed(plan, rough));
            if (!rough) speeds.insert(speed);
        }
    }
    EXPECT_EQ(speeds.size(), plans.size()) << "layouts that are alike prove nothing";
}

}  // namespace loratrain::plan_test
