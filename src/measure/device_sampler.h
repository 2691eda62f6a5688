#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/run_files/device_samples.h"
#include "measure/gpu_sensors.h"

namespace loratrain {

/// How often samples are taken, and how many are kept.
struct SamplePace {
    double seconds = 10.0;          ///< between two, at least
    std::size_t most_lines = 2000;  ///< 2 or more
};

/// Records what this rank's process and its GPU are like while it trains, in a file of its own
/// <run.dir>/devices/rank-N.jsonl: rank 0 makes the folder, a rank that does not find it (its host
/// has another disk) records nothing, and a file that cannot be written is given up.
///
/// A start that continues the run appends. A file that has come to `most_lines` is thinned to at
/// most half of them, by leaving out what is nearer than twice as many seconds (as often as it
/// takes) to the line before; from then on samples are that far apart. Main thread only.
class DeviceSampler {
  public:
    /// `allocated`: bytes now (DeviceSample); what it refers to outlives the sampler's use.
    DeviceSampler(std::string folder, std::int32_t rank, std::function<std::uint64_t()> allocated,
                  GpuSensors sensors, SamplePace pace = {});

    /// Takes a sample where the last one is old enough; to be called often. Nothing before the
    /// first take().
    void look();
    /// Takes one now.
    void take();

  private:
    using Clock = std::chrono::steady_clock;

    DeviceSample sample() const;
    void open();
    void append(const DeviceSample& sample);
    void thin();
    void write(const std::vector<DeviceSample>& samples);

    std::string folder_;
    std::int32_t rank_;
    std::function<std::uint64_t()> allocated_;
    GpuSensors sensors_;
    SamplePace pace_;
    std::string path_;  ///< "" = before the first, or given up
    bool opened_ = false;
    std::size_t lines_ = 0;
    Clock::time_point first_;
    Clock::time_point last_;
};

}  // namespace loratrain
