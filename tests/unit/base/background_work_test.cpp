#include "base/background_work.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace loratrain {
namespace {

int priority_of_this_thread() {
    return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
}

TEST(BackgroundWork, IsKnownAsLongAsItLasts) {
    EXPECT_FALSE(has_background_work());
    std::thread([] {
        const BackgroundWork one;
        EXPECT_TRUE(has_background_work());
        {
            const BackgroundWork other;
            EXPECT_TRUE(has_background_work());
        }
        EXPECT_TRUE(has_background_work());
    }).join();
    EXPECT_FALSE(has_background_work());
}

TEST(BackgroundWork, LowersThePriorityOfItsThreadAlone) {
    const int before = priority_of_this_thread();
    int during = before;
    int again = before;
    std::thread([&] {
        const BackgroundWork work;
        during = priority_of_this_thread();
        const BackgroundWork more;
        again = priority_of_this_thread();
    }).join();
    EXPECT_EQ(during, std::min(before + 10, 19));
    EXPECT_EQ(again, during);
    EXPECT_EQ(priority_of_this_thread(), before);
}

}  // namespace
}  // namespace loratrain
