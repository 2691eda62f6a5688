#include "measure/makespan_check.h"

#include <gtest/gtest.h>

#include "plan/cost/cost_model.h"
#include "plan/predict/predict.h"
#include "plan/schedule/plan_window.h"
#include "plan/schedule/schedule_stream.h"
#include "plan/schedule/window_fields.h"
#include "unit/model/small_stage.h"

namespace loratrain {
namespace {

TEST(MakespanCheck, OneStagePredictsTheSumOfItsWork) {
    const test::SmallCase small(test::small_model(), {test::small_adapter("a", 4)});
    Progress progress;
    progress.steps.assign(1, 0);
    progress.stopped.assign(1, false);
    const Window window = plan_window(small.job, small.plan, small.infos, progress, 1);
    ASSERT_EQ(window.microbatches.size(), 1U);
    const MicrobatchLoad load = load_of(window.microbatches[0], AttentionSpan());
    const StagePlan& stage = small.plan.replicas[0].stages[0];
    const double work = forward_seconds(small.plan.costs, stage, load) +
                        backward_seconds(small.plan.costs, stage, load, Recompute::none);
    const double predicted = predicted_seconds(small.job, small.plan, small.plan.costs, window);
    EXPECT_GE(predicted, work);

    MakespanCheck check(small.job, small.plan);
    EXPECT_FALSE(check.compared());
    check.add({{window}, {}}, 5.0);  // alone, it counts
    EXPECT_DOUBLE_EQ(check.measured(), 5.0);
    EXPECT_EQ(check.text().find("trained"), std::string::npos) << check.text();
    check.add({{window}, {}}, 2.0 * predicted);
    check.add({{window}, {}}, 2.0 * predicted);
    EXPECT_DOUBLE_EQ(check.measured(), 5.0 + 4.0 * predicted);
    EXPECT_DOUBLE_EQ(check.predicted(), 3.0 * predicted);
    EXPECT_NE(check.text().find(" for 3 microbatches; after the first stretch, which warms up, "),
              std::string::npos)
        << check.text();
    EXPECT_NE(check.text().find("(-50.0%) for 2 microbatches"), std::string::npos) << check.text();
}

TEST(MakespanCheck, ComparesTheBeginOfALongStream) {
    const test::SmallCase small(test::small_model(), {test::small_adapter("a", 4)});
    Progress progress;
    progress.steps.assign(1, 0);
    progress.stopped.assign(1, false);
    MakespanCheck check(small.job, small.plan, 2);
    ScheduleStream stream(small.job, small.plan, small.infos, progress);
    const JointWindow first = stream.next(1, false);
    ASSERT_EQ(first.common().microbatches.size(), 1U);
    check.add(first, 5.0);
    EXPECT_FALSE(check.compared());
    check.add(stream.next(1, false), 6.0);
    EXPECT_FALSE(check.compared());
    check.add(stream.next(1, false), 7.0);
    EXPECT_DOUBLE_EQ(check.measured(), 18.0);
    const double three = check.predicted();
    const double one =
        predicted_seconds(small.job, small.plan, small.plan.costs,
                          plan_window(small.job, small.plan, small.infos, progress, 1));
    EXPECT_GT(three, 2.0 * one);
    EXPECT_LT(three, 4.0 * one);
    check.add(stream.next(1, true), 9.0);
    EXPECT_DOUBLE_EQ(check.measured(), 18.0);
    EXPECT_NE(check.text().find("of 27.00 s trained"), std::string::npos) << check.text();
}

TEST(MakespanCheck, NewShapesStallOnce) {
    test::SmallCase small(test::small_model(), {test::small_adapter("a", 4)});
    Progress progress;
    progress.steps.assign(1, 0);
    progress.stopped.assign(1, false);
    const Window window = plan_window(small.job, small.plan, small.infos, progress, 1);
    const double before = predicted_seconds(small.job, small.plan, small.plan.costs, window);
    small.plan.costs.host.new_rows.each = 7.0;
    small.plan.costs.host.new_targets.each = 0.5;
    MakespanCheck check(small.job, small.plan);
    check.add({{window}, {}}, 5.0);
    EXPECT_NEAR(check.predicted(), before + 7.5, 1e-9);
    check.add({{window}, {}}, 5.0);
    EXPECT_NEAR(check.predicted(), 2.0 * before + 7.5, 1e-9);
}

TEST(MakespanCheck, NotThoseThatAreMetBefore) {
    test::SmallCase small(test::small_model(), {test::small_adapter("a", 4)});
    const Window window = plan_window(small.job, small.plan, small.infos, at_start(small.plan), 1);
    small.plan.costs.host.new_rows.each = 7.0;
    MetShapes met;
    met.meet_rows(0, window.microbatches[0].tokens(), window.microbatches[0].columns.width, {});
    MakespanCheck check(small.job, small.plan, MakespanCheck::most_microbatches, met);
    check.add({{window}, {}}, 5.0);
    EXPECT_LT(check.predicted(), 7.0);
}

TEST(MakespanCheck, TakesWhatWasMeasuredOfReplicas) {
    test::SmallCase small(test::small_model(), {test::small_adapter("a", 4)}, 2);
    small.job.parallel.deployment = {{1, 1, 2, {}}};
    small.make_plan_again();
    const JointWindow window =
        plan_joint_window(small.job, small.plan, small.infos, at_start(small.plan), 1);
    const auto predicted = [&] {
        MakespanCheck check(small.job, small.plan);
        check.add(window, 5.0);
        return check.predicted();
    };
    const double before = predicted();
    small.plan.measured = {{1, scaled(small.plan.costs, 3.0)}};
    EXPECT_GT(predicted(), 2.0 * before);
    EXPECT_NE(prediction_source(small.plan), "");
    const JointWindow again =
        plan_joint_window(small.job, small.plan, small.infos, at_start(small.plan), 1);
    ASSERT_EQ(again.replicas.size(), window.replicas.size());
    for (std::size_t r = 0; r < again.replicas.size(); ++r) {
        EXPECT_EQ(to_wire(again.replicas[r]), to_wire(window.replicas[r]));
    }
}

}  // namespace
}  // namespace loratrain
