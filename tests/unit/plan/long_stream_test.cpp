#include <gtest/gtest.h>

#include <algorithm>

#include "plan/replica_view.h"
#include "plan/schedule/schedule_stream.h"
#include "plan/schedule/under_way.h"
#include "support/sanitized.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// What the program keeps of a stream, counted at the end of every window.
struct Kept {
    std::size_t by_planner = 0;  ///< planner, order and checker
    std::size_t by_stages = 0;   ///< batches and microbatches
};

/// Plans so many rounds and performs them on every stage. Returns the most kept in the second half.
Kept most_kept(const Case& test, const Plan& plan, std::int32_t rounds, std::int32_t per_window) {
    ScheduleStream stream(test.job, plan, test.datasets, fresh(plan), 1,
                          ScheduleStream::Evaluations::due);
    std::vector<UnderWay> stages(only_replica(plan).replica.stages.size());
    Kept most;
    while (stream.round() < rounds) {
        const Window window = stream.next(per_window, false).common();
        std::size_t by_stages = 0;
        for (std::size_t s = 0; s < stages.size(); ++s) {
            stages[s].append(window);
            for (const Action& action : window.actions[s]) {
                for (const std::int32_t b : action.carried) stages[s].batch(b);
                stages[s].performed(action);
            }
            by_stages += stages[s].size();
        }
        if (2 * stream.round() < rounds) continue;
        most.by_planner = std::max(most.by_planner, stream.size());
        most.by_stages = std::max(most.by_stages, by_stages);
    }
    return most;
}

}  // namespace

/// A round has two batches, each in a microbatch of its own.
TEST(LongStream, KeepsNoMoreOfManyRoundsThanOfFew) {
    Case test = uniform_case(2, 3, 4, 10, 2);
    test.job.schedule.policy = SchedulePolicy::mlora;
    for (AdapterJob& adapter : test.job.adapters) adapter.max_steps = 100000;
    const Plan plan = test.plan();
    const Kept few = most_kept(test, plan, 200, 4);
    const Kept many = most_kept(test, plan, sanitized ? 1000 : 20000, 4);
    EXPECT_EQ(many.by_planner, few.by_planner);
    EXPECT_EQ(many.by_stages, few.by_stages);
    EXPECT_LT(few.by_planner, 100U);
    EXPECT_LT(few.by_stages, 100U);
}

/// Batches of several rounds share microbatches.
TEST(LongStream, BlocksLeaveAsWell) {
    Case test = uniform_case(3, 2, 4, 10, 2);
    test.job.parallel.microbatch_tokens = 40;
    for (AdapterJob& adapter : test.job.adapters) adapter.max_steps = 100000;
    const Plan plan = test.plan();
    ASSERT_GT(rounds_per_block(test.job, plan, test.datasets), 1);
    const Kept few = most_kept(test, plan, 200, 32);
    const Kept many = most_kept(test, plan, sanitized ? 400 : 2000, 32);
    EXPECT_LE(many.by_planner, few.by_planner);
    EXPECT_LE(many.by_stages, few.by_stages);
}

TEST(LongStream, EvaluationsLeaveAsWell) {
    Case test = uniform_case(3, 3, 4, 10, 2);
    test.datasets[0].eval = equal_samples(3, 10);
    test.job.eval.every_steps = 3;
    for (AdapterJob& adapter : test.job.adapters) adapter.max_steps = 100000;
    const Plan plan = test.plan();
    const Kept few = most_kept(test, plan, 200, 4);
    const Kept many = most_kept(test, plan, sanitized ? 400 : 800, 4);
    EXPECT_LE(many.by_planner, few.by_planner);
    EXPECT_LE(many.by_stages, few.by_stages);
}

/// The last batch of an adapter that ends is stepped with a later microbatch of others.
TEST(LongStream, AnEndedAdapterHoldsNobodyBack) {
    Case test = uniform_case(2, 2, 4, 10, 2);
    test.job.schedule.policy = SchedulePolicy::mlora;
    test.job.adapters[0].max_steps = 3;
    test.job.adapters[1].max_steps = 100000;
    const Plan plan = test.plan();
    EXPECT_EQ(most_kept(test, plan, 2000, 4).by_stages, most_kept(test, plan, 200, 4).by_stages);
}

}  // namespace loratrain::plan_test
