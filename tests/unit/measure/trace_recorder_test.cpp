#include "measure/trace_recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "plan/cost/cost_model.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

void pause() {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
}

class TraceRecorderTest : public testing::Test {
  protected:
    TraceRecorderTest() {
        for (const int sample : {0, 1}) {
            Microbatch microbatch;
            microbatch.segments.push_back({AdapterId{0}, 2, {{sample, 12}}});
            window_.microbatches.push_back(microbatch);
        }
        BatchPlan batch;
        batch.step = 2;
        batch.tokens = 24;
        window_.batches.push_back(batch);
    }
    TraceRecorder recorder(bool keep) {
        return {case_.job, only_replica(case_.plan), 0, *backend_, keep};
    }
    static Action action(ActionKind kind, int microbatch, int batch = -1) {
        return {kind, MicrobatchId{microbatch}, batch, -1, -1, -1, {}};
    }
    void start(TraceRecorder& recorder) {
        under_way_.append(window_);
        recorder.start(window_);
    }
    void perform(TraceRecorder& recorder, const Action& a) const {
        const RecordedAction recorded(&recorder, a, under_way_);
        pause();
    }
    void perform_window(TraceRecorder& recorder) {
        start(recorder);
        for (const int m : {0, 1}) {
            perform(recorder, action(ActionKind::forward, m));
            perform(recorder, action(ActionKind::backward, m));
        }
        perform(recorder, action(ActionKind::step, -1, 0));
    }

    SmallCase case_{small_model(), {small_adapter("a", 4)}};
    std::unique_ptr<Backend> backend_ = make_backend("cpu", {1, 0});
    Window window_;
    UnderWay under_way_;
};

TEST_F(TraceRecorderTest, SpansFollowEachOtherOverWindows) {
    TraceRecorder recorder = this->recorder(true);
    perform_window(recorder);
    perform_window(recorder);
    perform_window(recorder);
    recorder.settle();
    std::vector<std::string> names;
    double end = 0.0;
    for (const TraceSpan& span : recorder.spans()) {
        names.push_back(span.name);
        EXPECT_GE(span.start_s, end) << span.name;
        EXPECT_GE(span.end_s - span.start_s, 0.003) << span.name;
        end = span.end_s;
    }
    const std::vector<std::string> expected{"forward 0",  "backward 0", "forward 1",  "backward 1",
                                            "step a 3",   "forward 2",  "backward 2", "forward 3",
                                            "backward 3", "step a 3",   "forward 4",  "backward 4",
                                            "forward 5",  "backward 5", "step a 3"};
    EXPECT_EQ(names, expected);
    EXPECT_EQ(shares_of(recorder.spans()[1])[0].tokens, 12);
    EXPECT_EQ(recorder.spans()[4].category, "step");
}

TEST_F(TraceRecorderTest, WaitsAreNoWork) {
    TraceRecorder recorder = this->recorder(true);
    start(recorder);
    {
        const RecordedAction recorded(&recorder, action(ActionKind::backward, 1), under_way_);
        recorder.begin_wait();
        pause();
        recorder.end_wait();
        pause();
    }
    recorder.begin_wait();
    recorder.end_wait();
    recorder.settle();
    const std::vector<TraceSpan> spans = recorder.spans();
    ASSERT_EQ(spans.size(), 3U);
    const TraceSpan& work = spans[0];
    const TraceSpan& wait = spans[1];
    EXPECT_EQ(work.name, "backward 1");
    EXPECT_EQ(wait.category, "wait");
    EXPECT_GE(wait.end_s - wait.start_s, 0.003);
    EXPECT_GE(work.start_s, wait.end_s);
    EXPECT_DOUBLE_EQ(recorder.computed_seconds(), work.end_s - work.start_s);
}

TEST_F(TraceRecorderTest, WithoutSpansCostsAreObserved) {
    TraceRecorder recorder = this->recorder(false);
    perform_window(recorder);
    perform_window(recorder);
    recorder.settle();
    EXPECT_TRUE(recorder.spans().empty());
    EXPECT_EQ(recorder.observer().observations(), 2);  // the first window warms up
}

TEST_F(TraceRecorderTest, AllTimeIsAccountedForOnce) {
    TraceRecorder recorder = this->recorder(false);
    recorder.follow_activity();
    perform_window(recorder);
    perform_window(recorder);
    {
        const activity::Inside writing(activity::Task::checkpoint);
        pause();
    }
    recorder.settle();
    const PhaseAccount account = recorder.account();
    const auto seconds = [&](RunPhase phase) {
        return account.seconds[static_cast<std::size_t>(phase)];
    };
    EXPECT_GE(seconds(RunPhase::forward), 0.012);
    EXPECT_GE(seconds(RunPhase::backward), 0.012);
    EXPECT_GE(seconds(RunPhase::optimizer), 0.006);
    EXPECT_GE(seconds(RunPhase::checkpoint), 0.003);
    EXPECT_EQ(seconds(RunPhase::texts), 0.0);
    EXPECT_DOUBLE_EQ(
        recorder.computed_seconds(),
        seconds(RunPhase::forward) + seconds(RunPhase::backward) + seconds(RunPhase::optimizer));
    EXPECT_EQ(account.tokens, 48.0);
    EXPECT_EQ(account.squares, 4 * 144.0);
}

TEST_F(TraceRecorderTest, KindsOfWorkAreWhatThePlansCostsSay) {
    CostModel& costs = case_.plan.costs;
    costs.layer_forward = {1.0, 0.0, 0.5, 0.0};
    costs.layer_backward = {3.0, 0.0, 0.25, 0.0};
    costs.head = {2.0, 0.0, 0.0, 0.0};
    case_.plan.replicas[0].recompute = Recompute::layer;
    TraceRecorder recorder = this->recorder(false);
    start(recorder);
    perform(recorder, action(ActionKind::forward, 0));
    perform(recorder, action(ActionKind::backward, 0));
    const double layers = case_.plan.replicas[0].stages[0].layer_count;
    const PhaseAccount account = recorder.account();
    EXPECT_DOUBLE_EQ(account.forward.attention, 72.0 * layers);
    EXPECT_DOUBLE_EQ(account.forward.linears, layers);
    EXPECT_DOUBLE_EQ(account.forward.head, 2.0);
    EXPECT_DOUBLE_EQ(account.backward.attention, (36.0 + 72.0) * layers);
    EXPECT_DOUBLE_EQ(account.backward.linears, (3.0 + 1.0) * layers);
}

class DeviceStream final : public CpuBackend {
  public:
    DeviceStream() : CpuBackend(1) {}
    void* native_stream() const override { return const_cast<DeviceStream*>(this); }
};

/// Of all that is recorded: a backward of nothing before 3 ms of the host's, 20 times.
double backward_observed(const SmallCase& small, Backend& backend, const Window& window,
                         bool waits) {
    TraceRecorder recorder(small.job, only_replica(small.plan), 0, backend, false);
    UnderWay under_way;
    under_way.append(window);
    recorder.start(window);
    const Action backward{ActionKind::backward, MicrobatchId{0}, -1, -1, -1, -1, {}};
    for (int i = 0; i < 20; ++i) {
        { const RecordedAction recorded(&recorder, backward, under_way); }
        if (waits) recorder.begin_wait();
        pause();
        if (waits) recorder.end_wait();
    }
    recorder.settle();
    return backward_seconds(recorder.observer().refined(), small.plan.replicas[0].stages[0],
                            loads_of(window.microbatches[0], AttentionSpan()), Recompute::none);
}

TEST_F(TraceRecorderTest, WhatTheHostOfADeviceDoesBetweenActionsCounts) {
    DeviceStream device;
    EXPECT_GE(backward_observed(case_, device, window_, false), 0.002);
    const double waited = backward_observed(case_, device, window_, true);
    EXPECT_LT(waited, backward_observed(case_, device, window_, false));
}

TEST_F(TraceRecorderTest, WhatMeetsNewShapesIsNotObserved) {
    case_.plan.costs.host.new_rows.each = 1.0;
    TraceRecorder recorder = this->recorder(false);
    perform_window(recorder);
    window_.microbatches[0].segments[0].samples[0].tokens = 900;
    perform_window(recorder);
    perform_window(recorder);
    recorder.settle();
    // Of six backwards the first of all and the first of 900 tokens met something new, and of the
    // eight passes that count the first four warm up.
    EXPECT_EQ(recorder.observer().observations(), 2);
}

TEST_F(TraceRecorderTest, EvaluationIsNotObserved) {
    for (Microbatch& microbatch : window_.microbatches) microbatch.evaluation = true;
    case_.infos[0].eval = case_.infos[0].train;
    TraceRecorder recorder = this->recorder(true);
    for (int i = 0; i < 6; ++i) {
        start(recorder);
        perform(recorder, action(ActionKind::forward, 0));
    }
    recorder.settle();
    EXPECT_EQ(recorder.observer().observations(), 0);
    EXPECT_EQ(recorder.spans()[0].name, "evaluate 0");
}

}  // namespace
}  // namespace loratrain::test
