#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/text.h"
#include "plan/action_traits.h"
#include "plan/memory/memory_model.h"
#include "plan/schedule/check_window.h"
#include "plan/schedule/schedule_stream.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

/// A valid window on three stages whose batches span microbatches; tests break it.
class CheckWindow : public testing::Test {
  protected:
    void SetUp() override {
        Case test = uniform_case(4, 3, 12, 10, 4);
        test.job.parallel.microbatch_tokens = 30;
        plan_ = test.plan();
        job_ = test.job;
        valid_ = plan_window(test.job, plan_, test.datasets, fresh(plan_), 3);
        ASSERT_EQ(findings(valid_), "");
    }

    std::string findings(const Window& window) const {
        return join(check_window(job_, plan_, window), "\n");
    }

    /// Applies a change to a copy and expects a finding that has `words` in it.
    void expect_found(const std::string& words, const std::function<void(Window&)>& change) const {
        Window broken = valid_;
        change(broken);
        EXPECT_NE(findings(broken).find(words), std::string::npos)
            << "expected: " << words << "\nfound: " << findings(broken);
    }

    /// Position of the n-th action of a kind on a stage.
    std::size_t find(std::size_t stage, ActionKind kind, int n = 0) const {
        const std::vector<Action>& actions = valid_.actions[stage];
        for (std::size_t i = 0; i < actions.size(); ++i) {
            if (actions[i].kind == kind && n-- == 0) return i;
        }
        ADD_FAILURE() << "no such action";
        return 0;
    }

    /// Changes a number of every action that `applies`: one more (`most`: one less), and -1.
    void expect_any_change_found(const std::function<bool(const Action&)>& applies,
                                 const std::function<std::int32_t&(Action&)>& number,
                                 std::int32_t most = 100) const {
        for (std::size_t s = 0; s < valid_.actions.size(); ++s) {
            for (std::size_t i = 0; i < valid_.actions[s].size(); ++i) {
                if (!applies(valid_.actions[s][i])) continue;
                Window broken = valid_;
                std::int32_t& changed = number(broken.actions[s][i]);
                changed = changed < most ? changed + 1 : changed - 1;
                EXPECT_NE(findings(broken), "") << s << " " << action_text(broken.actions[s][i]);
                changed = -1;
                EXPECT_NE(findings(broken), "") << s << " " << action_text(broken.actions[s][i]);
            }
        }
    }

    static void move(std::vector<Action>& actions, std::size_t from, std::size_t to) {
        const Action action = actions[from];
        actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(from));
        actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(to), action);
    }

    Job job_;
    Plan plan_;
    Window valid_;
};

TEST_F(CheckWindow, FindsAnyMissingAction) {
    for (std::size_t s = 0; s < valid_.actions.size(); ++s) {
        for (std::size_t i = 0; i < valid_.actions[s].size(); ++i) {
            Window broken = valid_;
            broken.actions[s].erase(broken.actions[s].begin() + static_cast<std::ptrdiff_t>(i));
            EXPECT_NE(findings(broken), "") << s << " " << action_text(valid_.actions[s][i]);
        }
    }
}

TEST_F(CheckWindow, FindsAnyRepeatedAction) {
    for (std::size_t s = 0; s < valid_.actions.size(); ++s) {
        for (std::size_t i = 0; i < valid_.actions[s].size(); ++i) {
            Window broken = valid_;
            const Action action = valid_.actions[s][i];
            broken.actions[s].insert(broken.actions[s].begin() + static_cast<std::ptrdiff_t>(i),
                                     action);
            EXPECT_NE(findings(broken), "") << s << " " << action_text(action);
        }
    }
}

TEST_F(CheckWindow, FindsAnyMicrobatchSwap) {
    for (std::size_t s = 0; s < valid_.actions.size(); ++s) {
        for (const ActionKind kind : {ActionKind::forward, ActionKind::backward}) {
            const std::size_t first = find(s, kind, 1);
            const std::size_t second = find(s, kind, 2);
            expect_found("out of order",
                         [&](Window& w) { std::swap(w.actions[s][first], w.actions[s][second]); });
        }
    }
}

TEST_F(CheckWindow, FindsAnyCarriedBatchLostOrAdded) {
    for (std::size_t s = 0; s < valid_.actions.size(); ++s) {
        for (std::size_t i = 0; i < valid_.actions[s].size(); ++i) {
            const std::vector<std::int32_t>& carried = valid_.actions[s][i].carried;
            for (std::size_t c = 0; c < carried.size(); ++c) {
                Window broken = valid_;
                std::vector<std::int32_t>& list = broken.actions[s][i].carried;
                list.erase(list.begin() + static_cast<std::ptrdiff_t>(c));
                EXPECT_NE(findings(broken), "");
            }
            for (std::int32_t b = 0; b < std::ssize(valid_.batches); ++b) {
                if (std::count(carried.begin(), carried.end(), b) > 0) continue;
                Window broken = valid_;
                broken.actions[s][i].carried.push_back(b);
                EXPECT_NE(findings(broken), "") << action_text(broken.actions[s][i]);
            }
        }
    }
}

/// Both ends of a message agree on a wrong list.
TEST_F(CheckWindow, FindsCarriedListsWrongAtBothEnds) {
    const auto edit_both = [&](ActionKind send, ActionKind receive, std::size_t sender,
                               std::size_t receiver, auto edit) {
        for (const Action& action : valid_.actions[sender]) {
            if (action.kind != send) continue;
            Window broken = valid_;
            bool changed = false;
            for (const std::size_t s : {sender, receiver}) {
                for (Action& other : broken.actions[s]) {
                    const bool end = other.kind == (s == sender ? send : receive);
                    if (end && other.microbatch == action.microbatch) {
                        changed = edit(other.carried) || changed;
                    }
                }
            }
            if (changed) {
                EXPECT_NE(findings(broken), "") << action_text(action);
            }
        }
    };
    const auto drop_last = [](std::vector<std::int32_t>& carried) {
        if (carried.empty()) return false;
        carried.pop_back();
        return true;
    };
    const auto add_one = [](std::vector<std::int32_t>& carried) {
        if (std::count(carried.begin(), carried.end(), 2) > 0) return false;
        carried.push_back(2);
        return true;
    };
    for (std::size_t s = 0; s < 2; ++s) {
        edit_both(ActionKind::send_forward, ActionKind::recv_forward, s, s + 1, drop_last);
        edit_both(ActionKind::send_forward, ActionKind::recv_forward, s, s + 1, add_one);
        edit_both(ActionKind::send_backward, ActionKind::recv_backward, s + 1, s, drop_last);
        edit_both(ActionKind::send_backward, ActionKind::recv_backward, s + 1, s, add_one);
        edit_both(ActionKind::send_norms, ActionKind::recv_norms, s, s + 1, drop_last);
        edit_both(ActionKind::send_norms, ActionKind::recv_norms, s, s + 1, add_one);
    }
}

TEST_F(CheckWindow, FindsStaleWeights) {
    for (std::size_t s = 0; s < valid_.actions.size(); ++s) {
        const std::size_t step = find(s, ActionKind::step);
        std::size_t forward = step;
        while (valid_.actions[s][forward].kind != ActionKind::forward) ++forward;
        expect_found("stale weights", [&](Window& w) { move(w.actions[s], step, forward); });
    }
}

TEST_F(CheckWindow, FindsAStepBeforeItsNorm) {
    expect_found("its norm has not reached the stage", [&](Window& w) {
        move(w.actions[1], find(1, ActionKind::step), find(1, ActionKind::forward));
    });
}

TEST_F(CheckWindow, FindsAStepBeforeItsLastBackward) {
    expect_found("backwards are missing", [&](Window& w) {
        move(w.actions[0], find(0, ActionKind::step), find(0, ActionKind::backward));
    });
}

TEST_F(CheckWindow, FindsDeadlock) {
    expect_found("waits for ever",
                 [&](Window& w) { move(w.actions[0], find(0, ActionKind::recv_backward), 0); });
}

TEST_F(CheckWindow, FindsMessagesThatDoNotMatch) {
    expect_found("receives", [&](Window& w) {
        std::swap(w.actions[2][find(2, ActionKind::recv_forward, 0)],
                  w.actions[2][find(2, ActionKind::recv_forward, 1)]);
    });
    expect_found("has nothing to send", [&](Window& w) {
        const std::size_t send = find(0, ActionKind::send_forward);
        move(w.actions[0], send, send - 1);
    });
    expect_found("there is no next stage", [&](Window& w) {
        Action action;
        action.kind = ActionKind::send_norms;
        w.actions[2].push_back(action);
    });
}

TEST_F(CheckWindow, FindsAnyWrongSlot) {
    expect_any_change_found([](const Action& action) { return action.slot >= 0; },
                            [](Action& action) -> std::int32_t& { return action.slot; });
    expect_found("slot 0 still holds microbatch 0", [&](Window& w) {
        for (std::vector<Action>& actions : w.actions) {
            for (Action& action : actions) {
                if (action.slot > 0) action.slot = 0;
            }
        }
    });
    expect_found("is not in slot 2",
                 [&](Window& w) { w.actions[1][find(1, ActionKind::send_forward)].slot = 2; });
    expect_found("there is no slot 9",
                 [&](Window& w) { w.actions[0][find(0, ActionKind::forward)].slot = 9; });
}

TEST_F(CheckWindow, FindsAnyWrongBuffer) {
    expect_any_change_found(
        [](const Action& action) {
            return action.buffer >= 0 && traits_of(action.kind).channel != Channel::norms;
        },
        [](Action& action) -> std::int32_t& { return action.buffer; }, gradient_buffers - 1);
    expect_found("is not in buffer 1",
                 [&](Window& w) { w.actions[1][find(1, ActionKind::backward)].buffer = 1; });
    expect_found("is not in buffer 1",
                 [&](Window& w) { w.actions[1][find(1, ActionKind::send_backward)].buffer = 1; });
    expect_found("there is no buffer -1",
                 [&](Window& w) { w.actions[0][find(0, ActionKind::send_norms)].buffer = -1; });
    expect_found("there is no buffer 2",
                 [&](Window& w) { w.actions[1][find(1, ActionKind::recv_norms)].buffer = 2; });
}

/// Two gradients in one buffer, the first not yet used.
TEST_F(CheckWindow, FindsABufferThatIsTaken) {
    expect_found("buffer 0 still holds microbatch 0", [&](Window& w) {
        const std::size_t receive = find(0, ActionKind::recv_backward, 1);
        w.actions[0][receive].buffer = 0;
        move(w.actions[0], receive, find(0, ActionKind::backward));
    });
}

TEST_F(CheckWindow, FindsAnyWrongPeer) {
    expect_any_change_found([](const Action& action) { return !computes(action.kind); },
                            [](Action& action) -> std::int32_t& { return action.peer; });
}

/// A list that ends between a computation and its message.
TEST_F(CheckWindow, FindsWhatIsSentInALaterWindow) {
    const std::size_t send = find(0, ActionKind::send_forward);
    Window begin = valid_;
    begin.drains = false;
    for (std::vector<Action>& actions : begin.actions) actions.clear();
    begin.actions[0].assign(valid_.actions[0].begin(),
                            valid_.actions[0].begin() + static_cast<std::ptrdiff_t>(send));
    EXPECT_NE(findings(begin).find("ends with a tensor that was not sent"), std::string::npos);
}

/// A stream's second window names batch 0, which every stage stepped in the first.
TEST_F(CheckWindow, FindsBatchesOfThePast) {
    Case test = uniform_case(1, 2, 40, 10, 4);
    test.job.schedule.policy = SchedulePolicy::mlora;
    const Plan plan = test.plan();
    for (const ActionKind kind : {ActionKind::step, ActionKind::send_backward}) {
        ScheduleStream stream(test.job, plan, test.datasets, fresh(plan));
        StreamChecker checker(test.job, plan);
        EXPECT_EQ(join(checker.check(stream.next(5, false)), "\n"), "");
        JointWindow second = stream.next(5, true);
        std::vector<Action>& actions = second.replicas[0].actions[1];
        const auto changed =
            std::find_if(actions.begin(), actions.end(),
                         [&](const Action& action) { return action.kind == kind; });
        ASSERT_NE(changed, actions.end());
        const bool step = kind == ActionKind::step;
        if (step) changed->batch = 0;
        if (!step) changed->carried.push_back(0);
        const std::string found = join(checker.check(second), "\n");
        const char* words = step ? "is stepped a second time" : "batch 0 has left the stage";
        EXPECT_NE(found.find(words), std::string::npos) << found;
    }
}

TEST_F(CheckWindow, FindsAnyLostSample) {
    for (std::size_t m = 0; m < valid_.microbatches.size(); ++m) {
        for (std::size_t i = 0; i < valid_.microbatches[m].segments.size(); ++i) {
            expect_found("samples",
                         [&](Window& w) { w.microbatches[m].segments[i].samples.pop_back(); });
        }
    }
}

TEST_F(CheckWindow, FindsDuplicatedSamples) {
    expect_found("a second time", [](Window& w) {
        std::vector<SampleRef>& samples = w.microbatches[1].segments[0].samples;
        samples.push_back(w.microbatches[0].segments[0].samples[0]);
    });
    expect_found("a second time", [](Window& w) {  // the count stays right
        std::vector<SampleRef>& samples = w.microbatches[0].segments[0].samples;
        ASSERT_GE(samples.size(), 2U);
        samples[1] = samples[0];
    });
}

TEST_F(CheckWindow, FindsASampleOfAnotherBatchOfTheEpoch) {
    expect_found("a second time", [&](Window& w) {
        const SampleRef other = w.microbatches.back().segments[0].samples[0];
        const AdapterId adapter = w.microbatches.back().segments[0].adapter;
        for (Microbatch& microbatch : w.microbatches) {
            for (Segment& segment : microbatch.segments) {
                if (segment.adapter == adapter && segment.step == 0) {
                    segment.samples[0] = other;
                    return;
                }
            }
        }
    });
}

TEST_F(CheckWindow, FindsForeignSamples) {
    expect_found("impossible sample",
                 [](Window& w) { w.microbatches[0].segments[0].samples[0].index = 12; });
    expect_found("has samples but no entry",
                 [](Window& w) { w.microbatches[0].segments[0].step = 99; });
}

TEST_F(CheckWindow, FindsTooManyTokens) {
    expect_found("more than 30",
                 [](Window& w) { w.microbatches[0].segments[0].samples[0].tokens = 31; });
}

TEST_F(CheckWindow, FindsAWrongDenominator) {
    expect_found("is divided by 7", [](Window& w) { w.batches[1].denominator = 7; });
    expect_found("targets that weigh 0", [](Window& w) { w.batches[1].target_weight = 0; });
}

TEST_F(CheckWindow, FindsCutGroups) {
    Case test = uniform_case(2, 2, 13 + 11, 10, 4);
    test.job.parallel.microbatch_tokens = 40;
    test.datasets[0].eval = equal_samples(6, 9);
    plan_ = test.plan();
    for (AdapterPlan& adapter : plan_.adapters) {
        adapter.group_samples = 2;
        adapter.steps_per_epoch = 3;
    }
    valid_ = plan_window(test.job, plan_, test.datasets, fresh(plan_), 3);
    ASSERT_EQ(findings(valid_), "");
    EXPECT_EQ(valid_.batches[0].samples, 8);
    expect_found("cuts a group", [](Window& w) {
        std::vector<SampleRef>& samples = w.microbatches[0].segments[0].samples;
        std::swap(samples[0], samples[1]);
    });
    expect_found("cuts a group", [](Window& w) {
        Segment& from = w.microbatches[0].segments[0];
        const Segment cut{from.adapter, from.step, {from.samples.back()}};
        from.samples.pop_back();
        w.microbatches[0].segments.push_back(cut);
    });
    const Window evaluation = plan_eval_window(test.job, plan_, test.datasets, {AdapterId{0}});
    EXPECT_EQ(findings(evaluation), "");
    EXPECT_EQ(evaluation.batches[0].samples, 6);
}

TEST_F(CheckWindow, FindsBatchesThatAreComparedInParts) {
    Case test = uniform_case(1, 1, 24, 10, 4);
    test.job.parallel.microbatch_tokens = 80;
    test.job.adapters[0].loss.loss = Loss::cit;
    test.datasets[0].group_samples = 2;
    job_ = test.job;
    plan_ = test.plan();
    valid_ = plan_window(test.job, plan_, test.datasets, fresh(plan_), 3);
    ASSERT_EQ(findings(valid_), "");
    EXPECT_EQ(valid_.batches[0].samples, 8);
    expect_found("has 6 of the 8 samples", [](Window& w) {
        std::vector<SampleRef>& samples = w.microbatches[0].segments[0].samples;
        samples.resize(6);
    });
}

TEST_F(CheckWindow, FindsBadMicrobatches) {
    expect_found("two segments of adapter", [](Window& w) {
        Segment& segment = w.microbatches[0].segments[0];
        Segment half{segment.adapter, segment.step, {segment.samples.back()}};
        segment.samples.pop_back();
        w.microbatches[0].segments.push_back(half);
    });
    expect_found("does not come behind all of", [](Window& w) {
        for (Microbatch& microbatch : w.microbatches) {
            for (Segment& segment : microbatch.segments) {
                if (segment.adapter == w.microbatches[0].segments[0].adapter && segment.step == 1) {
                    w.microbatches[0].segments.push_back(segment);
                    for (BatchPlan& batch : w.batches) {
                        if (batch.adapter == segment.adapter && batch.step == 1) {
                            batch.first_microbatch = MicrobatchId{0};
                        }
                    }
                    return;
                }
            }
        }
    });
    expect_found("is empty", [](Window& w) { w.microbatches[0].segments.clear(); });
}

/// One microbatch with a segment of each of four adapters of rank 8.
TEST_F(CheckWindow, FindsWrongColumns) {
    Case test = uniform_case(4, 1, 4, 10, 1);
    job_ = test.job;
    plan_ = test.plan();
    valid_ = plan_window(test.job, plan_, test.datasets, fresh(plan_), 1);
    const LoraColumns& columns = valid_.microbatches.at(0).columns;
    ASSERT_TRUE(columns.augmented);
    ASSERT_EQ(columns.first, (std::vector<std::int32_t>{0, 8, 16, 24}));
    const auto expect_columns_found = [&](const std::string& words, auto change) {
        expect_found(words, [&](Window& w) { change(w.microbatches[0].columns); });
    };
    const char* misplaced = "LoRA columns that overlap or are outside";
    expect_columns_found(misplaced, [](LoraColumns& c) { c.first[1] = 4; });
    expect_columns_found(misplaced, [](LoraColumns& c) { c.first[3] = 25; });
    expect_columns_found(misplaced, [](LoraColumns& c) { c.first[0] = -1; });
    expect_columns_found(misplaced, [](LoraColumns& c) { c.first.pop_back(); });
    expect_columns_found(misplaced, [](LoraColumns& c) { c.augmented = false; });
    expect_columns_found("has 31 LoRA columns of 32", [](LoraColumns& c) { c.width = 31; });
    expect_columns_found("has 48 LoRA columns of 32", [](LoraColumns& c) { c.width = 48; });
    const char* wrong = "wrong lasting columns";
    expect_columns_found(wrong, [](LoraColumns& c) { c.lasting = {0, 8, 16}; });
    expect_columns_found(wrong, [](LoraColumns& c) { c.lasting = {0, 8, 16, 16}; });
    expect_columns_found(wrong, [](LoraColumns& c) { c.lasting = {8, 0, 16, 24}; });
    expect_found("other lasting columns", [&](Window& w) {
        w.microbatches.push_back(w.microbatches[0]);
        w.microbatches.back().columns.lasting = {0, 8, 16, 24};
    });
}

TEST_F(CheckWindow, FindsWrongNumbersOfBatches) {
    expect_found("says epoch", [](Window& w) { w.batches[0].epoch = 1; });
    expect_found("last_of_adapter", [](Window& w) { w.batches[0].last_of_adapter = true; });
    expect_found("samples, its microbatches", [](Window& w) { w.batches[0].samples = 3; });
    expect_found("0 of padding, its microbatches", [](Window& w) { ++w.batches[0].tokens; });
    expect_found("1 of padding, its microbatches", [](Window& w) { ++w.batches[0].padding; });
    expect_found("is in microbatches", [](Window& w) { w.batches[0].last_microbatch = {}; });
    expect_found("impossible counts", [](Window& w) { w.batches[0].targets = -1; });
    expect_found("impossible counts", [](Window& w) {
        ++w.batches[0].tokens;
        w.batches[0].padding = -1;
    });
    expect_found("is there twice", [](Window& w) { w.batches.push_back(w.batches[0]); });
    expect_found("steps in 2 rounds", [](Window& w) { w.rounds = 2; });
}

TEST_F(CheckWindow, FindsWrongPeaks) {
    expect_found("the window says 7", [](Window& w) { w.peak_in_flight[1] = 7; });
    Plan tight = plan_;
    tight.replicas[0].max_in_flight = 2;
    EXPECT_NE(join(check_window(job_, tight, valid_), "\n").find("there is no slot 2"),
              std::string::npos);
}

TEST_F(CheckWindow, FindsReferencesToNothing) {
    expect_found("names what is not there",
                 [](Window& w) { w.actions[0][0].microbatch = MicrobatchId{1000}; });
    expect_found("names an adapter or microbatch",
                 [](Window& w) { w.batches[0].adapter = AdapterId{50}; });
    expect_found("action lists for 2", [](Window& w) { w.actions.pop_back(); });
}

TEST_F(CheckWindow, EvaluationHasNoBackward) {
    const auto evaluate = [](Window& w) {
        for (BatchPlan& batch : w.batches) batch.evaluation = true;
        for (Microbatch& microbatch : w.microbatches) microbatch.evaluation = true;
    };
    expect_found("evaluation has no backward", evaluate);
    expect_found("evaluation has no step", [&](Window& w) {
        const Action step = w.actions[0][find(0, ActionKind::step)];
        evaluate(w);
        w.actions = {{step}, {}, {}};
    });
}

TEST_F(CheckWindow, ListsAtMostTwentyFindings) {
    Window broken = valid_;
    for (BatchPlan& batch : broken.batches) batch.tokens = batch.targets = -1;
    EXPECT_EQ(check_window(job_, plan_, broken).size(), 21U);
}

}  // namespace loratrain::plan_test
