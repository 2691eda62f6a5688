#include "base/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace loratrain {
namespace {

TEST(ParallelFor, RunsEachOnceAndRethrowsTheFirst) {
    std::vector<int> runs(100, 0);
    parallel_for(runs.size(), 4, [&](std::size_t i) { ++runs[i]; });
    EXPECT_EQ(runs, std::vector<int>(100, 1));
    parallel_for(0, 4, [](std::size_t) { FAIL(); });
    try {
        parallel_for(10, 3, [](std::size_t i) {
            if (i >= 4) throw i;
        });
        FAIL();
    } catch (std::size_t first) {
        EXPECT_EQ(first, 4U);
    }
}

TEST(ShareRows, CoversEveryRowOnce) {
    for (const std::int64_t rows : {0, 1, 7, 1000}) {
        for (const std::int64_t cols : {1, 4096, 1 << 20}) {
            std::vector<int> visits(static_cast<std::size_t>(rows), 0);
            share_rows(rows, cols, [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t row = begin; row < end; ++row) {
                    ++visits[static_cast<std::size_t>(row)];
                }
            });
            EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
        }
    }
}

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

TEST(WorkBeside, StepsBackForTrainingAlone) {
    const int usual = priority_of_this_thread();
    for (const Beside beside : {Beside::training, Beside::nothing}) {
        const bool steps_back = beside == Beside::training;
        int during = usual;
        std::thread([&] {
            work_beside(beside, [&] {
                during = priority_of_this_thread();
                EXPECT_EQ(has_background_work(), steps_back);
            });
        }).join();
        EXPECT_EQ(during, steps_back ? std::min(usual + 10, 19) : usual);
    }
}

}  // namespace
}  // namespace loratrain
