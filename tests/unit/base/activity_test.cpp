#include "base/activity.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace loratrain {
namespace {

TEST(Activity, SaysWhatWasBegun) {
    activity::begin(activity::Task::backward, 3, true);
    EXPECT_EQ(to_string(activity::now()), "backward of microbatch 3");
    EXPECT_TRUE(activity::now().on_device);
    activity::begin(activity::Task::checkpoint);
    EXPECT_EQ(to_string(activity::now()), "writing a checkpoint");
    EXPECT_FALSE(activity::now().on_device);
}

TEST(Activity, ProgressIsCountedAndWaitingIsMarked) {
    activity::begin(activity::Task::receive_input, 1);
    const std::uint64_t before = activity::progress();
    {
        const activity::Waiting waiting;
        EXPECT_TRUE(activity::now().waiting);
        EXPECT_EQ(activity::progress(), before);
    }
    EXPECT_FALSE(activity::now().waiting);
    EXPECT_EQ(activity::progress(), before + 1);
    activity::begin(activity::Task::forward, 1);
    EXPECT_EQ(activity::progress(), before + 2);
}

TEST(Activity, WorkOffTheDeviceIsMarked) {
    activity::begin(activity::Task::forward, 2, true);
    {
        const activity::OffDevice aside;
        EXPECT_FALSE(activity::now().on_device);
        EXPECT_EQ(to_string(activity::now()), "forward of microbatch 2");
    }
    EXPECT_TRUE(activity::now().on_device);
}

TEST(Activity, WhatIsDoneInsideOfSomethingGoesBackToIt) {
    activity::begin(activity::Task::receive_input, 4);
    const activity::Waiting waiting;
    {
        const activity::Inside writing(activity::Task::checkpoint);
        EXPECT_EQ(to_string(activity::now()), "writing a checkpoint");
        EXPECT_FALSE(activity::now().waiting);
    }
    EXPECT_EQ(to_string(activity::now()), "receiving the input of microbatch 4");
    EXPECT_TRUE(activity::now().waiting);
}

TEST(Activity, AFailureInsideOfSomethingIsFoundThere) {
    activity::begin(activity::Task::step, 1);
    try {
        const activity::Inside writing(activity::Task::export_adapter, 2);
        throw 1;
    } catch (int) {
        EXPECT_EQ(to_string(activity::now()), "exporting adapter 2");
    }
}

TEST(Activity, ListenersHearWhatTheMainThreadIsAt) {
    class Names final : public activity::Listener {
      public:
        void changed(const activity::State& state) override {
            names.push_back(to_string(state) + (state.waiting ? ", waiting" : ""));
        }
        std::vector<std::string> names;
    };
    Names listener;
    activity::listen(&listener);
    activity::begin(activity::Task::follow);
    {
        const activity::Waiting waiting;
        const activity::Inside writing(activity::Task::checkpoint);
    }
    activity::listen(nullptr);
    activity::begin(activity::Task::finish);
    const std::string follow = "waiting for what rank 0 says next";
    EXPECT_EQ(listener.names,
              (std::vector<std::string>{follow, follow + ", waiting", "writing a checkpoint",
                                        follow + ", waiting", follow}));
}

TEST(Activity, SomethingAsideIsNeitherWaitingNorProgress) {
    activity::begin(activity::Task::forward, 2, true);
    const activity::Waiting waiting;
    const std::uint64_t before = activity::progress();
    {
        const activity::Aside aside;
        EXPECT_FALSE(activity::now().on_device || activity::now().waiting);
        EXPECT_EQ(to_string(activity::now()), "forward of microbatch 2");
    }
    EXPECT_TRUE(activity::now().on_device && activity::now().waiting);
    EXPECT_EQ(activity::progress(), before) << "what waits for ever still shows";
}

}  // namespace
}  // namespace loratrain
