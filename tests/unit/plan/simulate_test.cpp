#include "plan/predict/simulate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/cost/cost_model.h"
#include "plan/memory/memory_model.h"
#include "plan/predict/predict.h"
#include "support/sanitized.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// A layer takes one second forwards and two backwards whatever it holds; all else is free.
CostModel unit_costs() {
    CostModel costs;
    costs.layer_forward.fixed = 1.0;
    costs.layer_backward.fixed = 2.0;
    return costs;
}

/// One layer a rank; each adapter's batch is cut into `microbatches` of one sample.
Case pipeline_case(int adapters, int ranks, int microbatches) {
    Case test =
        uniform_case(adapters, ranks, 2 * static_cast<std::size_t>(microbatches), 10, microbatches);
    test.job.parallel.microbatch_tokens = 10;
    return test;
}

struct Played {
    Plan plan;
    Window window;
    loratrain::Timeline timeline;
};

Played play(const Case& test, const Plan& plan, const CostModel& costs, std::int32_t rounds) {
    Played played;
    played.plan = plan;
    played.window = plan_window(test.job, played.plan, test.datasets, fresh(played.plan), rounds);
    Simulator simulator(test.job, only_replica(played.plan), costs);
    simulator.add(played.window);
    played.timeline = simulator.timeline();
    return played;
}

Played play(const Case& test, const CostModel& costs, std::int32_t rounds = 1) {
    return play(test, test.plan(), costs, rounds);
}

std::vector<Action> actions(std::initializer_list<std::pair<ActionKind, int>> list) {
    std::vector<Action> result;
    for (const auto& [kind, microbatch] : list) {
        result.emplace_back();
        result.back().kind = kind;
        result.back().microbatch = MicrobatchId{microbatch};
    }
    return result;
}

AdapterId adapter_of(const Window& window, const TimelineSpan& span) {
    if (span.kind == ActionKind::step) {
        return window.batches[static_cast<std::size_t>(span.batch)].adapter;
    }
    return window.microbatches[index(span.microbatch)].segments.front().adapter;
}

/// By unit_costs() and a second for every stepped parameter of an adapter with r = 8.
double seconds_of_a_layer(ActionKind kind) {
    if (kind == ActionKind::step) return 8 * (2 * 128 + 2 * 96 + 3 * 192);
    return kind == ActionKind::forward ? 1.0 : 2.0;
}

/// All forwards, then all backwards, on two stages.
Window gpipe_window(const Window& window) {
    Window gpipe = window;
    gpipe.actions.assign(2, {});
    const int count = static_cast<int>(window.microbatches.size());
    for (int m = 0; m < count; ++m) {
        for (const Action& action :
             actions({{ActionKind::forward, m}, {ActionKind::send_forward, m}})) {
            gpipe.actions[0].push_back(action);
        }
        for (const Action& action :
             actions({{ActionKind::recv_forward, m}, {ActionKind::forward, m}})) {
            gpipe.actions[1].push_back(action);
        }
    }
    for (int m = 0; m < count; ++m) {
        for (const Action& action :
             actions({{ActionKind::recv_backward, m}, {ActionKind::backward, m}})) {
            gpipe.actions[0].push_back(action);
        }
        for (const Action& action :
             actions({{ActionKind::backward, m}, {ActionKind::send_backward, m}})) {
            gpipe.actions[1].push_back(action);
        }
    }
    return gpipe;
}

}  // namespace

TEST(Load, CountsTokensSquaresAndTargets) {
    const MicrobatchLoad load =
        load_of({{{AdapterId{0}, 0, {{3, 7, 2}, {0, 10, 9}}}, {AdapterId{1}, 0, {{1, 10, 9}}}}},
                AttentionSpan());
    EXPECT_EQ(load.tokens, 27);
    EXPECT_EQ(load.squares, 249.0);
    EXPECT_EQ(load.targets, 20);
}

TEST(Simulator, OneStageNeverIdles) {
    const Played played = play(pipeline_case(2, 1, 3), unit_costs());
    EXPECT_EQ(played.timeline.microbatches.size(), 6U);
    EXPECT_DOUBLE_EQ(played.timeline.makespan(), 18.0);
    EXPECT_DOUBLE_EQ(played.timeline.busy(0), 18.0);
    EXPECT_DOUBLE_EQ(played.timeline.idle_share(), 0.0);
    EXPECT_EQ(played.timeline.tokens(), 60);
    EXPECT_DOUBLE_EQ(played.timeline.tokens_per_second(), 60.0 / 18.0);
}

TEST(Simulator, TwoStagesOfOneForwardOneBackward) {
    const Played played = play(pipeline_case(1, 2, 4), unit_costs());
    ASSERT_EQ(played.timeline.microbatches.size(), 4U);
    const auto& last = played.timeline.stages[1];
    std::vector<double> starts;
    for (const TimelineSpan& span : last) {
        if (span.kind != ActionKind::step) starts.push_back(span.start);
    }
    EXPECT_EQ(starts, (std::vector<double>{1, 2, 4, 5, 7, 8, 10, 11}));
    // Filling costs a forward, emptying a backward: (m + p - 1) (f + b).
    EXPECT_DOUBLE_EQ(played.timeline.makespan(), 15.0);
    EXPECT_DOUBLE_EQ(played.timeline.busy(0), 12.0);
    EXPECT_DOUBLE_EQ(played.timeline.idle_share(0), 0.2);
}

TEST(Simulator, BubbleOfAllForwardsFirst) {
    const Case test = pipeline_case(1, 2, 6);
    const Plan plan = test.plan();
    Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 1);
    Simulator simulator(test.job, only_replica(plan), unit_costs());
    simulator.add(gpipe_window(window));
    const loratrain::Timeline& timeline = simulator.timeline();
    EXPECT_DOUBLE_EQ(timeline.makespan(), (6 + 2 - 1) * 3.0);
    EXPECT_DOUBLE_EQ(timeline.idle_share(), 1.0 / 7.0);
}

TEST(Simulator, MessagesTravelBesideComputation) {
    const Case test = pipeline_case(1, 2, 4);
    CostModel costs = unit_costs();
    costs.message.fixed = 0.25;
    const Played free = play(test, unit_costs());
    const Played late = play(test, costs);
    // First forward and last backward message are waited for; and so is the flush of the norms.
    EXPECT_DOUBLE_EQ(late.timeline.stages[1][0].start, 1.25);
    EXPECT_DOUBLE_EQ(late.timeline.busy(0), free.timeline.busy(0));
    EXPECT_GT(late.timeline.makespan(), free.timeline.makespan() + 0.49);
    costs.message.fixed = 0.0;
    const double bytes = 10.0 * 64 * 4 + static_cast<double>(message_tail_bytes(test.plan()));
    costs.message.per_byte = 3.0 / bytes;
    const Played slow = play(test, costs);
    // The channel is busy for three seconds with each of the four.
    EXPECT_DOUBLE_EQ(slow.timeline.stages[1][0].start, 4.0);
    const Case one_way = test;
    const Plan plan = one_way.plan();
    Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 1);
    Simulator simulator(test.job, only_replica(plan), costs);
    simulator.add(gpipe_window(window));
    EXPECT_DOUBLE_EQ(simulator.timeline().stages[1][3].start, 13.0);
}

/// Four stages on two hosts: only the message between the middle ones takes what it does there.
TEST(Simulator, MessagesBetweenHostsTakeWhatTheyDoThere) {
    const Case test = pipeline_case(1, 4, 4);
    CostModel costs = unit_costs();
    costs.message.fixed = 0.25;
    costs.ranks_per_host = 2;
    const Played alike = play(test, costs);
    costs.between_hosts = LinkCost{0.25, 0.0};
    EXPECT_EQ(play(test, costs).timeline.makespan(), alike.timeline.makespan());
    costs.between_hosts = LinkCost{2.0, 0.0};
    const Played apart = play(test, costs);
    EXPECT_DOUBLE_EQ(apart.timeline.stages[1][0].start, 1.25);
    EXPECT_DOUBLE_EQ(apart.timeline.stages[2][0].start, 2.25 + 2.0);
    EXPECT_DOUBLE_EQ(apart.timeline.stages[3][0].start, 5.25 + 0.25);
    const double bytes = 10.0 * 64 * 4 + static_cast<double>(message_tail_bytes(test.plan()));
    costs.between_hosts = LinkCost{0.0, 3.0 / bytes};
    const Played narrow = play(test, costs);
    EXPECT_DOUBLE_EQ(narrow.timeline.stages[2][0].start, 2.25 + 3.0);
    costs.ranks_per_host = 4;
    EXPECT_EQ(play(test, costs).timeline.makespan(), alike.timeline.makespan());
}

/// A stage's two lanes on two hosts: of each pass of a layer two sums go over the link between
/// them.
TEST(Simulator, LanesOfTwoHostsSumBetweenThem) {
    Case test = uniform_case(1, 2, 4, 10, 4);
    test.model.vocab_size = 64;
    test.job.parallel.deployment = {{2, 1, 1, {}}};
    Plan plan = test.plan();
    CostModel& costs = plan.costs;
    const auto seconds = [&](std::int32_t ranks_per_host) {
        costs.ranks_per_host = ranks_per_host;
        return predict(test.job, plan, test.datasets, 1).seconds;
    };
    const double near = seconds(2);
    EXPECT_EQ(seconds(1), near);
    costs.between_hosts = LinkCost{1.0, costs.message.per_byte};
    EXPECT_EQ(seconds(2), near);
    const auto layers = static_cast<double>(test.model.layers);
    // Two messages for a sum, two sums in each of forward and backward.
    EXPECT_NEAR((seconds(1) - near) / (layers * 2.0 * 2.0 * 2.0 * 1.0), 1.0, 0.01);
}

TEST(Simulator, StagesOfAHostShareItsProcessors) {
    const Case test = pipeline_case(1, 2, 4);
    CostModel costs = unit_costs();
    costs.ranks_per_host = 2;
    costs.full_speed_ranks = 1.0;
    const Played shared = play(test, costs);
    const auto& last = shared.timeline.stages[1];
    // The first forward of stage 1 and the second of stage 0 take turns.
    EXPECT_DOUBLE_EQ(last[0].start, 1.0);
    EXPECT_DOUBLE_EQ(last[0].end, 3.0);
    EXPECT_DOUBLE_EQ(shared.timeline.stages[0][1].end, 3.0);
    // Somebody computes at any time, so that all work is done one after the other.
    EXPECT_DOUBLE_EQ(shared.timeline.makespan(), 2 * 4 * 3.0);
    EXPECT_DOUBLE_EQ(shared.timeline.full_speed_seconds, 2 * 4 * 3.0);
    // Each computes alone for 3 s at its end of the pipeline.
    EXPECT_DOUBLE_EQ(shared.timeline.busy(0) + shared.timeline.busy(1), 2 * 24.0 - 2 * 3.0);
    EXPECT_DOUBLE_EQ(shared.timeline.slowdown(), 42.0 / 24.0);
    costs.full_speed_ranks = 2.0;
    EXPECT_DOUBLE_EQ(play(test, costs).timeline.makespan(), 15.0);
    EXPECT_DOUBLE_EQ(play(test, costs).timeline.slowdown(), 1.0);
    costs.full_speed_ranks = 1.5;
    const double between = play(test, costs).timeline.makespan();
    EXPECT_GT(between, 15.0);
    EXPECT_LT(between, 15.0 * 2 / 1.5);
    costs.full_speed_ranks = 1.0;
    costs.ranks_per_host = 1;
    EXPECT_DOUBLE_EQ(play(test, costs).timeline.makespan(), 15.0);
}

TEST(Simulator, WhatIsAddedInPiecesTakesTheSameTime) {
    const Case test = pipeline_case(3, 4, 3);
    CostModel costs = unit_costs();
    costs.message.fixed = 0.125;
    costs.ranks_per_host = 4;
    costs.full_speed_ranks = 2.0;
    const Played whole = play(test, costs);
    Window rest = whole.window;
    Simulator simulator(test.job, only_replica(whole.plan), costs);
    for (const std::size_t part : {3U, 2U, 1U}) {
        Window piece = rest;
        for (std::size_t s = 0; s < 4; ++s) {
            auto& left = rest.actions[s];
            const auto count = static_cast<std::ptrdiff_t>(left.size() / part);
            piece.actions[s].assign(left.begin(), left.begin() + count);
            left.erase(left.begin(), left.begin() + count);
        }
        simulator.add(piece);
        rest.begins = false;
        rest.microbatches.clear();
        rest.batches.clear();
    }
    EXPECT_DOUBLE_EQ(simulator.timeline().makespan(), whole.timeline.makespan());
    EXPECT_DOUBLE_EQ(simulator.timeline().busy(2), whole.timeline.busy(2));
}

TEST(Simulator, TheHeadAndTheStepsCost) {
    CostModel costs = unit_costs();
    costs.head = {0.5, 0.1, 0.0};
    costs.step_fixed = 7.0;
    costs.step_per_parameter = 1.0;
    const Played played = play(pipeline_case(1, 1, 1), costs);
    const auto& spans = played.timeline.stages[0];
    ASSERT_EQ(spans.size(), 3U);
    EXPECT_DOUBLE_EQ(spans[0].end - spans[0].start, 1.0 + 0.5 + 0.1 * 9);
    EXPECT_DOUBLE_EQ(spans[1].end - spans[1].start, 2.0);
    EXPECT_EQ(spans[2].kind, ActionKind::step);
    EXPECT_EQ(spans[2].batch, 0);
    // r = 8 on all linears: q, o 64+64; k, v 64+32; gate, up, down 64+128.
    EXPECT_DOUBLE_EQ(spans[2].end - spans[2].start, 7.0 + 8 * (2 * 128 + 2 * 96 + 3 * 192));
}

TEST(Simulator, SharedLayersTakeTheTimeOfTheirAdapters) {
    Case test = pipeline_case(2, 2, 1);
    test.model = cheap_head_model(4);
    Plan plan = test.plan();
    share_first_layer(plan, 0, 1);
    CostModel costs = unit_costs();
    costs.step_per_parameter = 1.0;
    const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 1);
    ASSERT_EQ(window.microbatches.size(), 2U);
    Simulator simulator(test.job, only_replica(plan), costs);
    simulator.add(window);
    for (std::size_t s = 0; s < 2; ++s) {
        const auto& spans = simulator.timeline().stages[s];
        EXPECT_EQ(spans.size(), 6U);
        for (const TimelineSpan& span : spans) {
            const bool first = adapter_of(window, span) == AdapterId{0};
            const int layers = first ? (s == 0 ? 3 : 1) : 2;
            EXPECT_DOUBLE_EQ(span.end - span.start, layers * seconds_of_a_layer(span.kind))
                << "stage " << s;
        }
    }
}

TEST(Simulator, RecomputationMakesBackwardsLonger) {
    Case test = pipeline_case(1, 1, 1);
    test.job.parallel.recompute = Recompute::layer;
    EXPECT_DOUBLE_EQ(play(test, unit_costs()).timeline.makespan(), 4.0);
}

/// Their activations are not wanted again.
TEST(Simulator, EvaluationsOffloadNothing) {
    Case test = uniform_case(1, 1, 4, 10, 1);
    test.model = cheap_head_model(8);
    test.job.datasets[0].eval_path = "eval.jsonl";
    test.datasets[0].eval = equal_samples(2, 10);
    test.job.parallel.microbatch_tokens = 10;
    test.job.parallel.recompute = Recompute::layer;
    test.job.parallel.offload = {Offload::Kind::some, 8};
    CostModel costs = unit_costs();
    costs.offload_per_token = 1.0;  // six layers' are behind two of computation
    const Plan plan = test.plan();
    const auto seconds = [&](const Window& window) {
        Simulator simulator(test.job, only_replica(plan), costs);
        simulator.add(window);
        return simulator.timeline().makespan();
    };
    const Window evaluation = plan_eval_window(test.job, plan, test.datasets, {AdapterId{0}});
    ASSERT_EQ(evaluation.microbatches.size(), 2U);
    EXPECT_DOUBLE_EQ(seconds(evaluation), 2 * 8.0);
    const Window training = plan_window(test.job, plan, test.datasets, fresh(plan), 1);
    ASSERT_EQ(training.microbatches.size(), 1U);
    EXPECT_DOUBLE_EQ(seconds(training), (2.0 + 60.0) + (4.0 + 60.0));
}

TEST(Simulator, WindowsFollowEachOther) {
    const Case test = pipeline_case(2, 2, 3);
    const Plan plan = test.plan();
    Progress progress = fresh(plan);
    Simulator simulator(test.job, only_replica(plan), unit_costs());
    const Window first = plan_window(test.job, plan, test.datasets, progress, 1);
    simulator.add(first);
    const double once = simulator.timeline().makespan();
    advance(progress, first);
    simulator.add(plan_window(test.job, plan, test.datasets, progress, 1));
    const loratrain::Timeline& both = simulator.timeline();
    EXPECT_EQ(both.microbatches.size(), 2 * first.microbatches.size());
    EXPECT_EQ(both.batches.size(), 4U);
    EXPECT_EQ(number(both.batches[2].first_microbatch),
              static_cast<int>(first.microbatches.size()));
    EXPECT_EQ(both.stages[0].back().batch, 3);
    EXPECT_GT(both.makespan(), once + 3.0 * static_cast<double>(first.microbatches.size()));
    EXPECT_LE(both.makespan(), 2 * once);
}

TEST(Simulator, AnEmptyWindowTakesNoTime) {
    const Case test = pipeline_case(1, 2, 1);
    const Plan plan = test.plan();
    Simulator simulator(test.job, only_replica(plan), unit_costs());
    simulator.add(Window{});
    EXPECT_EQ(simulator.timeline().makespan(), 0.0);
    EXPECT_EQ(simulator.timeline().idle_share(), 0.0);
    EXPECT_EQ(simulator.timeline().tokens_per_second(), 0.0);
}

TEST(Simulator, FindsWhatNeverEndsAndWhatComesInTheWrongOrder) {
    const Case test = pipeline_case(1, 2, 2);
    const Plan plan = test.plan();
    const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 1);
    Window waiting = window;
    waiting.actions[0].pop_back();
    waiting.actions[0].clear();
    Simulator simulator(test.job, only_replica(plan), unit_costs());
    simulator.add(waiting);
    EXPECT_THROW(simulator.timeline(), Error);
    Window crossed = window;
    crossed.actions = {actions({{ActionKind::send_forward, 1}}),
                       actions({{ActionKind::recv_forward, 0}})};
    Simulator second(test.job, only_replica(plan), unit_costs());
    EXPECT_THROW(second.add(crossed), Error);
}

TEST(Simulator, WaitsForTheNextWindow) {
    const Case test = pipeline_case(1, 2, 1);
    const Plan plan = test.plan();
    const Window whole = plan_window(test.job, plan, test.datasets, fresh(plan), 1);
    Window early;
    early.microbatches = whole.microbatches;
    early.actions = {{}, actions({{ActionKind::recv_forward, 0}, {ActionKind::forward, 0}})};
    Window late;
    late.begins = false;
    late.actions = {actions({{ActionKind::forward, 0}, {ActionKind::send_forward, 0}}), {}};
    Simulator simulator(test.job, only_replica(plan), unit_costs());
    simulator.add(early);
    EXPECT_THROW(simulator.timeline(), Error);
    simulator.add(late);
    EXPECT_DOUBLE_EQ(simulator.timeline().makespan(), 2.0);
}

TEST(Simulator, AgreesWithItselfOnRandomJobs) {
    for (int seed = 1; seed <= random_cases(6); ++seed) {
        const Case test = random_case(static_cast<std::uint64_t>(seed));
        const Plan plan = test.plan();
        const Played first = play(test, plan, plan.costs, 3);
        const Played again = play(test, plan, plan.costs, 3);
        EXPECT_EQ(first.timeline.makespan(), again.timeline.makespan());
        for (std::size_t s = 0; s < first.timeline.stages.size(); ++s) {
            double before = 0.0;
            for (const TimelineSpan& span : first.timeline.stages[s]) {
                EXPECT_GE(span.start, before);
                EXPECT_GE(span.end, span.start);
                before = span.end;
            }
            EXPECT_GE(first.timeline.idle_share(s), 0.0);
            EXPECT_LT(first.timeline.idle_share(s), 1.0);
        }
    }
}

}  // namespace loratrain::plan_test
