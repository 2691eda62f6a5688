#include <gtest/gtest.h>

#include "report/page_parts.h"

namespace loratrain {
namespace {

constexpr std::uint64_t mib = 1 << 20;

bool says(const std::string& page, const std::string& part) {
    return page.find(part) != std::string::npos;
}

/// A rank's samples of starts that began at these times, three of each.
std::vector<DeviceSample> samples_of(std::int32_t rank, const std::vector<double>& starts) {
    std::vector<DeviceSample> samples;
    for (const double start : starts) {
        for (const double seconds : {0.0, 10.0, 20.0}) {
            samples.push_back({start + seconds, seconds, rank, 30 * mib, 20 * mib});
        }
    }
    return samples;
}

void add_gpu(std::vector<DeviceSample>& samples) {
    for (DeviceSample& sample : samples) {
        sample.gpu.watts = 600.0;
        sample.gpu.sm_mhz = 1755.0;
        sample.gpu.celsius = 60.0;
        sample.gpu.used_bytes = 3000 * mib;
        sample.gpu.slowed_by_power = sample.seconds > 5.0;
        sample.gpu.slowed_by_heat = false;
    }
}

TEST(Devices, AreLeftOutWhereNothingWasRecorded) {
    EXPECT_EQ(report::devices({}), "");
}

TEST(Devices, AreMemoryAloneWithoutSensors) {
    RunRecord run;
    run.samples = {samples_of(0, {1000.0}), samples_of(1, {1000.2})};
    const std::string page = report::devices(run);
    EXPECT_TRUE(says(page, "Memory and devices over time"));
    EXPECT_TRUE(says(page, "Memory that the backend has allocated"));
    EXPECT_TRUE(says(page, "Resident memory on the host"));
    EXPECT_TRUE(says(page, "rank 1: 30 at 20")) << page;
    EXPECT_TRUE(says(page, "MiB"));
    EXPECT_FALSE(says(page, "GiB"));
    for (const char* word : {"GPU", "Clock", "nan", "inf"}) EXPECT_FALSE(says(page, word)) << word;
}

TEST(Devices, HaveAllThatSensorsShow) {
    RunRecord run;
    run.samples = {samples_of(0, {1000.0})};
    add_gpu(run.samples[0]);
    const std::string page = report::devices(run);
    for (const char* title : {"Memory in use on the GPU", "GPU power",
                              "Clock of the multiprocessors", "GPU temperature"}) {
        EXPECT_TRUE(says(page, title)) << title;
    }
    EXPECT_TRUE(says(page, "rank 0: 2.93 at 0")) << "3000 MiB in GiB";
    EXPECT_TRUE(says(page, "rank 0: 600 at 20"));
    EXPECT_TRUE(
        says(page, "power limit in 66.7% of the measurements, and because of heat in 0.0%"));
}

TEST(Devices, SkipTheTimeBetweenStarts) {
    RunRecord run;
    run.samples = {samples_of(0, {1000.0, 90000.0}), samples_of(1, {90000.5})};
    const std::string page = report::devices(run);
    EXPECT_TRUE(says(page, "seconds of training"));
    EXPECT_TRUE(says(page, "rank 0: 20 at 40"));
    EXPECT_TRUE(says(page, "rank 1: 20 at 40.5"));
    EXPECT_FALSE(says(page, "89"));
}

TEST(Devices, OfManyRanksHaveSeveralCharts) {
    RunRecord run;
    for (std::int32_t rank = 0; rank < 10; ++rank)
        run.samples.push_back(samples_of(rank, {1000.0}));
    run.plan.emplace().memory.resize(12);
    const std::string page = report::devices(run);
    EXPECT_TRUE(says(page, "Ranks 0 to 7"));
    EXPECT_TRUE(says(page, "Ranks 8 to 9"));
    EXPECT_TRUE(says(page, "Of the first 10 ranks."));
}

}  // namespace
}  // namespace loratrain
