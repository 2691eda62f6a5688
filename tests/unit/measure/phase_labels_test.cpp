#include "measure/phase_labels.h"

#include <gtest/gtest.h>

#include <numeric>

namespace loratrain {
namespace {

using activity::Task;

activity::State at(Task task, bool waiting = false) {
    return {task, false, waiting, -1};
}

/// Labels with a clock that stands still unless it is told to go on.
class PhaseClock {
  public:
    PhaseClock() { mark(); }

    PhaseLabels labels;

    /// The labels say where the time from here on goes, until the next.
    void mark() {
        points_.push_back(now_);
        phases_.push_back(labels.now());
    }
    void pass(double seconds) { now_ += seconds; }
    PhaseSeconds seconds() {
        mark();
        PhaseAccount account;
        account.add(points_, phases_);
        return account.seconds;
    }
    double of(RunPhase phase) { return seconds()[static_cast<std::size_t>(phase)]; }

  private:
    double now_ = 0.0;
    std::vector<double> points_;
    std::vector<RunPhase> phases_;
};

TEST(PhaseLabels, ActionsAndTheirWaitsAreTold) {
    PhaseClock clock;
    clock.pass(1.0);
    clock.labels.begin_action(ActionKind::recv_forward, false);
    clock.mark();
    clock.labels.begin_wait();
    clock.mark();
    clock.pass(2.0);
    clock.labels.end_wait();
    clock.mark();
    clock.pass(0.25);
    clock.labels.end_action();
    clock.labels.begin_action(ActionKind::forward, false);
    clock.mark();
    clock.labels.begin_wait();  // for the send before
    clock.mark();
    clock.pass(0.5);
    clock.labels.end_wait();
    clock.mark();
    clock.pass(4.0);
    clock.labels.begin_action(ActionKind::forward, true);
    clock.mark();
    clock.pass(3.0);
    clock.labels.begin_action(ActionKind::step, false);
    clock.mark();
    clock.pass(8.0);
    clock.labels.end_action();
    EXPECT_EQ(clock.of(RunPhase::other), 1.0);
    EXPECT_EQ(clock.of(RunPhase::waiting), 2.0);
    EXPECT_EQ(clock.of(RunPhase::communication), 0.75);
    EXPECT_EQ(clock.of(RunPhase::forward), 4.0);
    EXPECT_EQ(clock.of(RunPhase::evaluation), 3.0);
    EXPECT_EQ(clock.of(RunPhase::optimizer), 8.0);
    const PhaseSeconds all = clock.seconds();
    EXPECT_EQ(std::accumulate(all.begin(), all.end(), 0.0), 18.75) << "each second once";
}

TEST(PhaseLabels, WhatIsDoneAmidAnActionGoesBackToIt) {
    PhaseLabels labels;
    labels.begin_action(ActionKind::recv_backward, false);
    labels.begin_wait();
    EXPECT_TRUE(labels.follow(at(Task::checkpoint)));
    EXPECT_EQ(labels.now(), RunPhase::checkpoint);
    EXPECT_FALSE(labels.follow(at(Task::checkpoint, true)));
    EXPECT_TRUE(labels.follow(at(Task::receive_gradient, true)));
    EXPECT_EQ(labels.now(), RunPhase::waiting);
    labels.end_wait();
    EXPECT_EQ(labels.now(), RunPhase::communication);
}

TEST(PhaseLabels, BesideActionsTheMainThreadTells) {
    PhaseLabels labels;
    const std::pair<Task, RunPhase> expected[] = {
        {Task::plan, RunPhase::planning},         {Task::follow, RunPhase::waiting},
        {Task::checkpoint, RunPhase::checkpoint}, {Task::export_adapter, RunPhase::exporting},
        {Task::generate, RunPhase::texts},        {Task::admit, RunPhase::other},
        {Task::finish, RunPhase::other}};
    for (const auto& [task, phase] : expected) {
        labels.follow(at(task));
        EXPECT_EQ(labels.now(), phase) << activity::words_of(task);
    }
    labels.begin_action(ActionKind::backward, false);
    EXPECT_FALSE(labels.follow(at(Task::backward)));
    labels.end_action();
    EXPECT_EQ(labels.now(), RunPhase::other);
    EXPECT_TRUE(labels.follow(at(Task::backward, true))) << "it waits behind its last action";
    EXPECT_EQ(labels.now(), RunPhase::waiting);
}

}  // namespace
}  // namespace loratrain
