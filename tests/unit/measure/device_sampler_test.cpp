#include "measure/device_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/files.h"
#include "test_libraries.h"

namespace loratrain::test {
namespace {

class DeviceSamples : public ::testing::Test {
  protected:
    DeviceSampler sampler(SamplePace pace, GpuSensors sensors = {}, std::int32_t rank = 2) const {
        return {dir_.path(), rank, [] { return std::uint64_t{123}; }, std::move(sensors), pace};
    }
    std::string file() const { return dir_.file("rank-2.jsonl"); }
    std::vector<DeviceSample> samples() const { return device_samples(get(file())); }
    std::size_t lines() const {
        const std::string text = get(file());
        return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    }
    /// So many, 10 s apart, ending at `end`.
    void put_samples(std::size_t count, double end) const {
        std::string text;
        for (std::size_t i = 0; i < count; ++i) {
            const double seconds = 10.0 * static_cast<double>(i);
            const double begin = end - 10.0 * static_cast<double>(count - 1);
            text += to_line({begin + seconds, seconds, 2, 1000 + i, 7}) + "\n";
        }
        put(file(), text);
    }

    test::TempDir dir_;
};

TEST_F(DeviceSamples, SayWhatIsKnown) {
    DeviceSampler both = sampler({}, GpuSensors("0000:1B:00.0", LORATRAIN_FAKE_NVML));
    both.take();
    ASSERT_EQ(samples().size(), 1U);
    const DeviceSample sample = samples().front();
    EXPECT_GT(sample.time, 1.7e9);
    EXPECT_EQ(sample.seconds, 0.0);
    EXPECT_EQ(sample.rank, 2);
    EXPECT_GT(sample.resident_bytes, std::uint64_t{100} << 10U);
    EXPECT_EQ(sample.allocated_bytes, 123U);
    EXPECT_EQ(sample.gpu.watts, 612.3);
    EXPECT_EQ(sample.gpu.sm_mhz, 1755.0);
    EXPECT_EQ(sample.gpu.celsius, 64.0);
    EXPECT_EQ(sample.gpu.used_bytes, std::uint64_t{5} << 30U);
    EXPECT_EQ(sample.gpu.slowed_by_power, true);
    EXPECT_EQ(sample.gpu.slowed_by_heat, false);

    EXPECT_FALSE(both.joules()) << "between two samples alone";
    both.take();
    ASSERT_EQ(samples().size(), 2U);
    const double between = samples()[1].time - samples()[0].time;  // each to a tenth
    EXPECT_GT(both.joules(), 0.0);
    EXPECT_LT(both.joules(), 612.3 * (between + 0.2));

    DeviceSampler host_alone = sampler({});
    host_alone.take();
    EXPECT_FALSE(host_alone.joules());
    ASSERT_EQ(samples().size(), 3U);
    EXPECT_FALSE(samples().back().gpu.watts || samples().back().gpu.slowed_by_heat);
    EXPECT_EQ(get(file()).find("null"), std::string::npos);
}

TEST_F(DeviceSamples, AreTakenOnceInAWhile) {
    DeviceSampler seldom = sampler({3600.0, 100});
    seldom.look();
    EXPECT_FALSE(std::filesystem::exists(file())) << "nothing before the first";
    seldom.take();
    for (int i = 0; i < 1000; ++i) seldom.look();
    EXPECT_EQ(lines(), 1U);
    DeviceSampler always = sampler({0.0, 100});
    always.take();
    for (int i = 0; i < 10; ++i) always.look();
    EXPECT_EQ(lines(), 12U);
}

TEST_F(DeviceSamples, GoOnBehindThoseOfAStartBefore) {
    put_samples(3, 5000.0);
    const std::string before = get(file());
    put(file(), before + "{\"time\": 5010, \"sec");
    sampler({}).take();
    EXPECT_EQ(lines(), 4U);
    EXPECT_EQ(get(file()).substr(0, before.size()), before) << "without what was torn";
    EXPECT_EQ(samples().size(), 4U);
    EXPECT_EQ(samples().back().seconds, 0.0);
}

TEST_F(DeviceSamples, AreThinnedEvenly) {
    put_samples(99, 1000000.0);
    sampler({10.0, 100}).take();
    const std::vector<DeviceSample> kept = samples();
    ASSERT_GE(kept.size(), 26U);
    ASSERT_LE(kept.size(), 50U);
    EXPECT_EQ(lines(), kept.size());
    EXPECT_EQ(kept.front().resident_bytes, 1000U);
    EXPECT_GT(kept.back().time, 1.7e9) << "the newest";
    for (std::size_t i = 1; i + 1 < kept.size(); ++i) {
        EXPECT_EQ(kept[i].time - kept[i - 1].time, kept[1].time - kept[0].time);
    }
}

TEST_F(DeviceSamples, NeverComeToMoreThanTheBound) {
    DeviceSampler quick = sampler({0.001, 20});
    for (int i = 0; i < 200; ++i) {
        quick.take();
        ASSERT_LT(lines(), 20U);
    }
    EXPECT_GE(lines(), 1U);
}

TEST_F(DeviceSamples, AreNoReasonToFail) {
    DeviceSampler elsewhere(dir_.file("none"), 0, [] { return std::uint64_t{1}; }, {});
    elsewhere.take();
    elsewhere.look();
    EXPECT_FALSE(std::filesystem::exists(dir_.file("none")));
    std::filesystem::create_directories(file());
    DeviceSampler blocked = sampler({0.0, 20});
    blocked.take();
    blocked.look();
    EXPECT_TRUE(std::filesystem::is_directory(file()));
}

}  // namespace
}  // namespace loratrain::test
