#include "measure/cost_observer.h"

#include <gtest/gtest.h>

#include "plan/cost/cost_model.h"

namespace loratrain {
namespace {

CostModel costs_of(double layers, double head) {
    CostModel costs;
    costs.layer_forward = {1e-4 * layers, 2e-6 * layers, 1e-9 * layers};
    costs.layer_backward = {2e-4 * layers, 4e-6 * layers, 3e-9 * layers};
    costs.head = {1e-5 * head, 1e-5 * head, 0.0};
    costs.message.fixed = 7e-6;
    costs.source = "prior";
    return costs;
}

const StagePlan first_stage{0, 0, 4, true, false};
const StagePlan last_stage{1, 4, 3, false, true};
/// Both with a third of a layer more or less than three: adapter 0 of layer 3 is on the first.
const StagePlan first_shared{0, 0, 4, true, false, {}, {0, 1}};
const StagePlan last_shared{1, 3, 3, false, true, {1}, {}};
const StagePlan whole_model{0, 0, 7, true, true};

/// Two adapters' rows, of either none in every fourth.
AdapterLoads load(int i) {
    const std::int64_t tokens = 200 + 100 * (i % 5);
    const auto length = static_cast<double>(20 + 30 * (i % 3));
    const std::int64_t first = tokens * (i * 7 % 4) / 3;
    AdapterLoads loads;
    for (const std::int64_t rows : {first, tokens - first}) {
        loads.add(static_cast<AdapterId>(loads.parts.size()),
                  {rows, static_cast<double>(rows) * length, rows / (1 + i % 2)});
    }
    return loads;
}

void observe(CostObserver& observer, const StagePlan& stage, const CostModel& truth,
             Recompute recompute = Recompute::none) {
    for (int i = 0; i < 200; ++i) {
        observer.backward(load(i), backward_seconds(truth, stage, load(i), recompute));
        observer.forward(load(i), forward_seconds(truth, stage, load(i)));
    }
}

void expect_like(const CostModel& costs, const CostModel& truth, const StagePlan& stage) {
    for (int i = 0; i < 5; ++i) {
        const double forward = forward_seconds(truth, stage, load(i));
        const double backward = backward_seconds(truth, stage, load(i), Recompute::none);
        EXPECT_NEAR(forward_seconds(costs, stage, load(i)), forward, 0.05 * forward);
        EXPECT_NEAR(backward_seconds(costs, stage, load(i), Recompute::none), backward,
                    0.05 * backward);
    }
}

TEST(CostObserver, StagesTogetherFindLayersAndHead) {
    const CostModel prior = costs_of(1.0, 1.0);
    const CostModel truth = costs_of(1.6, 0.5);
    CostObserver first(prior, first_stage, 2, Recompute::none);
    CostObserver last(prior, last_stage, 2, Recompute::none);
    observe(first, first_stage, truth);
    observe(last, last_stage, truth);
    CostObserver all(prior, first_stage, 2, Recompute::none);
    all.add(first.sums());
    all.add(last.sums());
    EXPECT_EQ(all.observations(), 400);
    expect_like(all.refined(), truth, first_stage);
    expect_like(all.refined(), truth, last_stage);
    EXPECT_EQ(all.refined().message.fixed, prior.message.fixed);
    EXPECT_EQ(all.refined().source, "prior, refined by 400 microbatches");
}

TEST(CostObserver, OneStageKeepsTheSharesOfThePrior) {
    CostObserver observer(costs_of(1.0, 1.0), whole_model, 1, Recompute::none);
    observe(observer, whole_model, costs_of(1.5, 1.5));
    expect_like(observer.refined(), costs_of(1.5, 1.5), whole_model);
}

TEST(CostObserver, RecomputationIsNotTheBackwardItself) {
    const CostModel truth = costs_of(0.5, 1.0);
    CostObserver observer(costs_of(1.0, 1.0), first_stage, 2, Recompute::layer);
    observe(observer, first_stage, truth, Recompute::layer);
    expect_like(observer.refined(), truth, first_stage);
}

TEST(CostObserver, SharedLayersCountByTheirRows) {
    for (const Recompute recompute : {Recompute::none, Recompute::layer}) {
        const CostModel truth = costs_of(1.6, 0.5);
        CostObserver first(costs_of(1.0, 1.0), first_shared, 2, recompute);
        CostObserver last(costs_of(1.0, 1.0), last_shared, 2, recompute);
        observe(first, first_shared, truth, recompute);
        observe(last, last_shared, truth, recompute);
        first.add(last.sums());
        EXPECT_EQ(first.observations(), 400);
        const CostModel refined = first.refined();
        EXPECT_NEAR(refined.layer_forward.seconds(300, 9000),
                    truth.layer_forward.seconds(300, 9000),
                    0.01 * truth.layer_forward.seconds(300, 9000));
        for (const StagePlan& stage : {first_stage, last_stage, first_shared, last_shared}) {
            expect_like(refined, truth, stage);
        }
    }
}

TEST(CostObserver, SharedLayersOfOtherCostsThanThePrior) {
    CostModel truth = costs_of(1.0, 1.0);
    truth.layer_forward.fixed *= 3.0;
    truth.layer_backward.per_token *= 0.7;
    CostObserver first(costs_of(1.0, 1.0), first_shared, 2, Recompute::none);
    observe(first, first_shared, truth);
    expect_like(first.refined(), truth, first_stage);
    expect_like(first.refined(), truth, first_shared);
}

TEST(CostObserver, WhatTheHostHoldsUpIsTheHosts) {
    CostModel prior = costs_of(1.0, 1.0);
    prior.host = {{1e-2, 1e-3}, {2e-2, 1e-3}, {5e-3, 0.0}, {1e-3, 0.0}, 3e-3, {}, {}};
    CostModel truth = prior;
    truth.host = {{1.3e-2, 3e-3}, {2.6e-2, 3e-3}, {7e-3, 0.0}, {1.4e-3, 0.0}, 4e-3, {}, {}};
    CostObserver first(prior, first_stage, 2, Recompute::none);
    CostObserver last(prior, last_stage, 2, Recompute::none);
    observe(first, first_stage, truth);
    observe(last, last_stage, truth);
    EXPECT_EQ(first.observations(), 200);
    first.add(last.sums());
    const CostModel refined = first.refined();
    EXPECT_EQ(refined.layer_backward.per_token, prior.layer_backward.per_token);
    for (const StagePlan& stage : {first_stage, last_stage}) {
        for (int i = 0; i < 5; ++i) {
            const double host = host_seconds(truth.host, stage, load(i));
            EXPECT_NEAR(host_seconds(refined.host, stage, load(i)), host, 0.03 * host);
            EXPECT_NEAR(stage_seconds(refined, stage, load(i), Recompute::none), host, 0.03 * host);
        }
    }
}

TEST(CostObserver, PausesAreLeftOut) {
    CostObserver observer(costs_of(1.0, 1.0), first_stage, 2, Recompute::none);
    observe(observer, first_stage, costs_of(1.0, 1.0));
    for (int i = 0; i < 20; ++i) observer.backward(load(i), 1000.0);
    EXPECT_EQ(observer.observations(), 200);
    expect_like(observer.refined(), costs_of(1.0, 1.0), first_stage);
}

TEST(CostObserver, NothingObservedIsThePrior) {
    const CostObserver observer(costs_of(1.0, 1.0), first_stage, 2, Recompute::none);
    EXPECT_EQ(observer.observations(), 0);
    EXPECT_EQ(observer.refined().head.per_token, costs_of(1.0, 1.0).head.per_token);
}

}  // namespace
}  // namespace loratrain
