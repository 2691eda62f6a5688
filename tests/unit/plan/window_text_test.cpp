#include "plan/text/window_text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "plan/schedule/action_text.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

void expect_equal(const LoraColumns& read, const LoraColumns& written) {
    EXPECT_EQ(read.augmented, written.augmented);
    EXPECT_EQ(read.width, written.width);
    EXPECT_EQ(read.first, written.first);
    EXPECT_EQ(read.lasting, written.lasting);
}

}  // namespace

/// Side by side, by segment, and on a GPU the same in every microbatch.
TEST(WindowText, KeepsColumns) {
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
            const Window read = window_from_text(to_text(window));
            expect_equal(read.microbatches.front().columns, columns);
        }
    }
}

TEST(WindowText, KeepsEveryField) {
    Case test = random_case(3);
    test.job.schedule.packing = Packing::bucketed;
    for (const SampleInfo& sample : test.datasets[0].train) {
        test.datasets[0].train_weights.push_back(0.1 * sample.targets);
    }
    const Plan plan = test.plan();
    const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 4);
    const Window read = window_from_text(to_text(window));
    EXPECT_EQ(to_text(read), to_text(window));
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

TEST(WindowText, NamesEveryFieldOfABatch) {
    const Case test = uniform_case(1, 1, 4, 10, 4);
    const Plan plan = test.plan();
    const std::string text = to_text(plan_window(test.job, plan, test.datasets, fresh(plan), 1));
    const auto commas_of_line = [&](std::size_t at) {
        return std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                          text.begin() + static_cast<std::ptrdiff_t>(text.find('\n', at)), ',');
    };
    const std::size_t names = text.find("batches:");
    EXPECT_EQ(commas_of_line(names), commas_of_line(text.find('\n', names) + 1));
}

TEST(WindowText, KeepsAnEmptyOne) {
    Window window;
    window.first_round = 7;
    window.actions.resize(2);
    window.peak_in_flight = {0, 0};
    const Window read = window_from_text(to_text(window));
    EXPECT_EQ(read.first_round, 7);
    EXPECT_EQ(read.actions.size(), 2U);
    EXPECT_TRUE(read.batches.empty() && read.microbatches.empty());
}

TEST(WindowText, RefusesWhatItDidNotWrite) {
    const std::string good = to_text(Window{});
    std::string broken = good;
    broken.replace(broken.find("rounds: 0"), 9, "rounds: 1.5");
    EXPECT_THROW(window_from_text(broken), Error);
    EXPECT_THROW(window_from_text(good + "  - \"X1\"\n"), Error);
    EXPECT_THROW(window_from_text("[1, 2"), Error);
}

TEST(ActionText, ListsLeaveOutWhatFollows) {
    const std::vector<std::string> whole{"rf0@1<0", "F0@1",    "sf0@1>2", "rb0%0<2", "B0@1%0",
                                         "sb0%0>0", "rf1@0<0", "S0",      "F1@0",    "rn%0<0"};
    const std::vector<std::string> brief{"rf0@1<0", "F0",    "sf0>2", "rb0%0<2", "B0",
                                         "sb0>0",   "rf1@0", "S0",    "F1",      "rn<0"};
    ActionShorthand writing;
    ActionShorthand reading;
    for (std::size_t i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(action_text(writing.shorten(action_from_text(whole[i]))), brief[i]);
        EXPECT_EQ(action_text(reading.expand(action_from_text(brief[i]))), whole[i]);
    }
}

TEST(ActionText, ReadsBack) {
    for (const char* text : {"F3", "F3@1", "B12@0%1", "S4", "rf3@2<0", "sf3@1>2[0,2]", "rb3%1<2[1]",
                             "sb0%0>0", "rn%0<0[5]", "sn[0,1,2]"}) {
        EXPECT_EQ(action_text(action_from_text(text)), text);
    }
    for (const char* text : {"", "F", "X3", "N", "F3@", "F3%1@1", "sf3<1", "rf3>1", "F3[", "F3[]",
                             "F3[1", "F3 ", "F3[1]x", "Sx"}) {
        EXPECT_THROW(action_from_text(text), Error) << text;
    }
}

}  // namespace loratrain::plan_test
