#include "plan/schedule/window_fields.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "plan/action_traits.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

Window travelled(const Window& window) {
    return from_wire<Window>(to_wire(window), "a window");
}

void expect_equal(const LoraColumns& read, const LoraColumns& written) {
    EXPECT_EQ(read.augmented, written.augmented);
    EXPECT_EQ(read.width, written.width);
    EXPECT_EQ(read.first, written.first);
    EXPECT_EQ(read.lasting, written.lasting);
}

}  // namespace

/// Side by side, by segment, and on a GPU the same in every microbatch.
TEST(WindowFields, KeepsColumns) {
    Case test = uniform_case(3, 1, 4, 10, 4);
    for (const bool cuda : {false, true}) {
        for (const std::int32_t pads : {32, 16, 0}) {
            Plan plan = test.plan();
            if (cuda) plan.backend = BackendKind::cuda;
            plan.replicas[0].pad_columns = pads;
            const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 1);
            const LoraColumns& columns = window.microbatches.front().columns;
            EXPECT_EQ(columns.lasting.size(), cuda && pads == 32 ? 3U : 0U);
            EXPECT_EQ(columns.augmented, pads >= 32) << pads;
            const Window read = travelled(window);
            expect_equal(read.microbatches.front().columns, columns);
        }
    }
}

TEST(WindowFields, KeepsEveryField) {
    Case test = random_case(3);
    test.job.schedule.packing = Packing::bucketed;
    test.job.parallel.microbatch_tokens = 300;  // as many as a sample has; a search takes long
    for (const SampleInfo& sample : test.datasets[0].train) {
        test.datasets[0].train_weights.push_back(0.1 * sample.targets);
    }
    const Plan plan = test.plan();
    const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 4);
    const Window read = travelled(window);
    EXPECT_EQ(to_wire(read), to_wire(window));
    EXPECT_EQ(read.rounds, window.rounds);
    EXPECT_EQ(read.peak_in_flight, window.peak_in_flight);
    ASSERT_EQ(read.batches.size(), window.batches.size());
    for (std::size_t b = 0; b < read.batches.size(); ++b) {
        EXPECT_EQ(read.batches[b].adapter, window.batches[b].adapter);
        EXPECT_EQ(read.batches[b].tokens, window.batches[b].tokens);
        EXPECT_EQ(read.batches[b].padding, window.batches[b].padding);
        EXPECT_EQ(read.batches[b].targets, window.batches[b].targets);
        EXPECT_EQ(read.batches[b].target_weight, window.batches[b].target_weight);
        EXPECT_EQ(read.batches[b].denominator, window.batches[b].denominator);
        EXPECT_EQ(read.batches[b].last_microbatch, window.batches[b].last_microbatch);
        EXPECT_EQ(read.batches[b].last_of_adapter, window.batches[b].last_of_adapter);
    }
    ASSERT_EQ(read.microbatches.size(), window.microbatches.size());
    for (std::size_t m = 0; m < read.microbatches.size(); ++m) {
        EXPECT_EQ(read.microbatches[m].tokens(), window.microbatches[m].tokens());
        EXPECT_EQ(read.microbatches[m].samples(), window.microbatches[m].samples());
        expect_equal(read.microbatches[m].columns, window.microbatches[m].columns);
    }
    ASSERT_EQ(read.actions.size(), window.actions.size());
    for (std::size_t s = 0; s < read.actions.size(); ++s) {
        ASSERT_EQ(read.actions[s].size(), window.actions[s].size());
        for (std::size_t i = 0; i < read.actions[s].size(); ++i) {
            EXPECT_EQ(read.actions[s][i].kind, window.actions[s][i].kind);
            EXPECT_EQ(read.actions[s][i].microbatch, window.actions[s][i].microbatch);
            EXPECT_EQ(read.actions[s][i].batch, window.actions[s][i].batch);
            EXPECT_EQ(read.actions[s][i].slot, window.actions[s][i].slot);
            EXPECT_EQ(read.actions[s][i].buffer, window.actions[s][i].buffer);
            EXPECT_EQ(read.actions[s][i].peer, window.actions[s][i].peer);
            EXPECT_EQ(read.actions[s][i].carried, window.actions[s][i].carried);
        }
    }
}

TEST(WindowFields, KeepsAnEmptyOne) {
    Window window;
    window.first_round = 7;
    window.actions.resize(2);
    window.peak_in_flight = {0, 0};
    const Window read = travelled(window);
    EXPECT_EQ(read.first_round, 7);
    EXPECT_EQ(read.actions.size(), 2U);
    EXPECT_TRUE(read.batches.empty() && read.microbatches.empty());
}

TEST(WindowFields, RefusesWhatItDidNotWrite) {
    Window window;
    window.microbatches.push_back({{{AdapterId{1}, 0, {{0, 5, 2}}}}});
    EXPECT_THROW(travelled(window), Error) << "no first column";
    window.microbatches.back().columns.first = {0};
    const std::string good = to_wire(window);
    EXPECT_EQ(to_wire(travelled(window)), good);
    for (std::size_t size = 0; size < good.size(); ++size) {
        EXPECT_THROW(from_wire<Window>(good.substr(0, size), "a window"), Error) << size;
    }
    EXPECT_THROW(from_wire<JointWindow>(to_wire(JointWindow{}), "windows"), Error);
    window.actions = {{Action{}}};
    window.actions[0][0].kind = static_cast<ActionKind>(action_kinds.size());
    EXPECT_THROW(travelled(window), Error);
}

TEST(ActionText, NamesWhatAnActionHas) {
    Action action;
    action.kind = ActionKind::send_forward;
    action.microbatch = MicrobatchId{3};
    action.slot = 1;
    action.peer = 2;
    action.carried = {0, 2};
    EXPECT_EQ(action_text(action), "sf3@1>2[0,2]");
    action = {};
    action.kind = ActionKind::recv_norms;
    action.buffer = 0;
    action.peer = 4;
    EXPECT_EQ(action_text(action), "rn%0<4");
    action = {};
    action.kind = ActionKind::step;
    action.batch = 7;
    EXPECT_EQ(action_text(action), "S7");
}

}  // namespace loratrain::plan_test
