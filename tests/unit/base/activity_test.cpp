#include "base/activity.h"

#include <gtest/gtest.h>

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
