#include "base/parallel_for.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace loratrain
