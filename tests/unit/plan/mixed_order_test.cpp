#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "plan/pack/sample_order.h"
#include "plan/sample_counts.h"
#include "plan/schedule/check_window.h"
#include "plan/schedule/schedule_stream.h"
#include "plan/schedule/window_fields.h"
#include "plan/text/plan_text.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {
namespace {

using Counts = std::vector<std::int32_t>;

TEST(MixedOrder, OfFilesOnceIsThatOfOneFile) {
    const std::vector<FileShare> files{{30, 30}, {1, 1}, {9, 9}};
    for (const std::int32_t epoch : {0, 3}) {
        EXPECT_EQ(mixed_order(7, "math", epoch, files, true),
                  epoch_order(7, "math", epoch, 40, true));
    }
    EXPECT_EQ(mixed_order(7, "math", 2, files, false), epoch_order(7, "math", 2, 40, false));
}

/// How often each sample comes in epochs from `first` on.
Counts times_in(const std::vector<FileShare>& files, std::int32_t first, std::int32_t epochs) {
    std::int64_t samples = 0;
    for (const FileShare& file : files) samples += file.samples;
    Counts times(static_cast<std::size_t>(samples), 0);
    for (std::int32_t epoch = first; epoch < first + epochs; ++epoch) {
        for (const std::int32_t sample : mixed_order(11, "d", epoch, files, true)) {
            ++times[static_cast<std::size_t>(sample)];
        }
    }
    return times;
}

TEST(MixedOrder, AnEpochHasItsShareOfEveryFile) {
    const std::vector<FileShare> files{{4, 8}, {6, 15}, {8, 2}};
    for (std::int32_t epoch = 0; epoch < 9; ++epoch) {
        const Counts times = times_in(files, epoch, 1);
        EXPECT_TRUE(std::all_of(times.begin(), times.begin() + 4, [](int n) { return n == 2; }));
        EXPECT_EQ(std::accumulate(times.begin() + 4, times.begin() + 10, 0), 15);
        EXPECT_TRUE(std::all_of(times.begin() + 4, times.begin() + 10,
                                [](int n) { return n >= 2 && n <= 4; }));
        EXPECT_EQ(std::accumulate(times.begin() + 10, times.end(), 0), 2);
    }
    EXPECT_NE(mixed_order(11, "d", 0, files, true), mixed_order(11, "d", 1, files, true));
    EXPECT_NE(mixed_order(11, "d", 0, files, true), mixed_order(12, "d", 0, files, true));
}

/// The rest of one epoch goes on in the next.
TEST(MixedOrder, OverEpochsAllOfAFileComesAlike) {
    const std::vector<FileShare> files{{8, 2}, {6, 9}};
    const Counts times = times_in(files, 0, 8);
    EXPECT_TRUE(std::all_of(times.begin(), times.begin() + 8, [](int n) { return n == 2; }));
    EXPECT_TRUE(std::all_of(times.begin() + 8, times.end(), [](int n) { return n == 12; }));
    EXPECT_EQ(times_in({{8, 2}}, 4, 4), Counts(8, 1));
    EXPECT_EQ(mixed_order(5, "d", 1, std::vector<FileShare>{{5, 2}}, false), (Counts{2, 3}));
    EXPECT_EQ(mixed_order(5, "d", 2, std::vector<FileShare>{{5, 2}}, false), (Counts{4, 0}));
}

TEST(FileShares, AreWholeGroups) {
    const auto taken = [](std::int64_t samples, double weight, std::int32_t group) {
        return file_share(samples, weight, group).taken;
    };
    EXPECT_EQ(taken(10, 1.0, 1), 10);
    EXPECT_EQ(taken(10, 0.25, 2), 2);
    EXPECT_EQ(taken(10, 0.5, 2), 6);
    EXPECT_EQ(taken(10, 1e-9, 2), 2);
    EXPECT_EQ(taken(0, 2.0, 1), 0);
    EXPECT_EQ(file_of(std::vector<std::int64_t>{3, 0, 2}, 2), 0U);
    EXPECT_EQ(file_of(std::vector<std::int64_t>{3, 0, 2}, 3), 2U);
    EXPECT_THROW(file_of(std::vector<std::int64_t>{3, 0, 2}, 5), Error);
}

/// Weighted files, of which the first 4 samples are a's: twice in an epoch, b's 6 half the times.
Case case_of_files() {
    Case test = uniform_case(2, 2, 10, 5, 4);
    test.job.datasets[0].files = {{"/a", "a", 2.0}, {"/b", "b", 0.5}};
    test.datasets[0].files = {{4, 8}, {6, 3}};
    test.datasets[0].eval = equal_samples(5, 7);
    test.datasets[0].eval_files = {2, 3};
    test.job.eval.every_steps = 2;
    for (AdapterJob& adapter : test.job.adapters) adapter.num_train_epochs = 3;
    return test;
}

TEST(FileShares, AreOfPlansAndWindows) {
    const Case test = case_of_files();
    const Plan plan = test.plan();
    EXPECT_EQ(plan.adapters[0].steps_per_epoch, 3);
    EXPECT_EQ(plan.adapters[0].total_steps, 9);
    const AdapterPlan read = plan_from_text(to_text(plan)).adapters[1];
    ASSERT_EQ(read.files.size(), 2U);
    EXPECT_EQ(read.files[1].taken, 3);
    EXPECT_EQ(read.eval_files, (std::vector<std::int64_t>{2, 3}));
    ScheduleStream stream(test.job, plan, test.datasets, fresh(plan), 1,
                          ScheduleStream::Evaluations::due);
    const Window window = stream.next(9, true).common();
    std::vector<double> trained{0.0, 0.0};
    for (const BatchPlan& batch : from_wire<Window>(to_wire(window), "a window").batches) {
        ASSERT_EQ(batch.file_denominators.size(), 2U);
        const double sum = batch.file_denominators[0] + batch.file_denominators[1];
        EXPECT_EQ(sum, batch.denominator);
        if (batch.evaluation) {
            EXPECT_EQ(batch.file_denominators, (std::vector<double>{12.0, 18.0}));
        } else {
            trained[0] += batch.file_denominators[0];
            trained[1] += batch.file_denominators[1];
        }
    }
    EXPECT_EQ(trained, (std::vector<double>{2 * 3 * 8 * 4.0, 2 * 3 * 3 * 4.0}));
}

TEST(FileShares, AreChecked) {
    const Case test = case_of_files();
    const Plan plan = test.plan();
    ScheduleStream stream(test.job, plan, test.datasets, fresh(plan), 1);
    Window window = stream.next(9, true).common();
    EXPECT_TRUE(check_window(test.job, plan, window).empty());
    Window without = window;
    without.batches[0].file_denominators.clear();
    EXPECT_EQ(check_window(test.job, plan, without).size(), 1U);
    for (Microbatch& microbatch : window.microbatches) {
        for (Segment& segment : microbatch.segments) {
            for (SampleRef& sample : segment.samples) sample.index = 4;
        }
    }
    EXPECT_FALSE(check_window(test.job, plan, window).empty());
}

}  // namespace
}  // namespace loratrain::plan_test
