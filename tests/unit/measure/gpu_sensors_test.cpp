#include "measure/gpu_sensors.h"

#include <gtest/gtest.h>

#include "test_libraries.h"

namespace loratrain {
namespace {

constexpr const char* bus_id = "0000:1B:00.0";

void expect_nothing(const GpuSensors& sensors) {
    EXPECT_FALSE(sensors.found());
    const GpuReading reading = sensors.read();
    EXPECT_FALSE(reading.watts || reading.sm_mhz || reading.celsius || reading.used_bytes ||
                 reading.slowed_by_power || reading.slowed_by_heat);
}

TEST(GpuSensors, ShowWhatNvmlTells) {
    const GpuSensors sensors(bus_id, LORATRAIN_FAKE_NVML);
    ASSERT_TRUE(sensors.found());
    const GpuReading reading = sensors.read();
    EXPECT_DOUBLE_EQ(reading.watts.value(), 612.345);
    EXPECT_EQ(reading.sm_mhz, 1755.0);
    EXPECT_EQ(reading.celsius, 64.0);
    EXPECT_EQ(reading.used_bytes, std::uint64_t{5} << 30U);
    EXPECT_EQ(reading.slowed_by_power, true);
    EXPECT_EQ(reading.slowed_by_heat, false);
}

TEST(GpuSensors, LeaveOutWhatADriverDoesNotTell) {
    const GpuSensors sensors(bus_id, LORATRAIN_FAKE_OLD_NVML);
    ASSERT_TRUE(sensors.found());
    const GpuReading reading = sensors.read();
    EXPECT_FALSE(reading.watts || reading.sm_mhz || reading.celsius || reading.used_bytes);
    EXPECT_EQ(reading.slowed_by_power, false);
    EXPECT_EQ(reading.slowed_by_heat, true);
}

TEST(GpuSensors, AreNoneWithoutLibraryOrGpu) {
    expect_nothing(GpuSensors());
    expect_nothing(GpuSensors("0000:99:00.0", LORATRAIN_FAKE_NVML));
    expect_nothing(GpuSensors("", LORATRAIN_FAKE_NVML));
    expect_nothing(GpuSensors(bus_id, "libno-such-nvml.so.1"));
    expect_nothing(GpuSensors(bus_id, "libm.so.6"));
}

TEST(GpuSensors, AreShutDownOnce) {
    GpuSensors first(bus_id, LORATRAIN_FAKE_NVML);
    {
        GpuSensors second = std::move(first);
        EXPECT_TRUE(second.found());
        expect_nothing(first);  // NOLINT(bugprone-use-after-move): moved from means none
        first = GpuSensors(bus_id, LORATRAIN_FAKE_NVML);
    }
    EXPECT_TRUE(first.read().watts) << "the library is still started for it";
}

}  // namespace
}  // namespace loratrain
