#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/run_files/device_samples.h"
#include "measure/gpu_sensors.h"

namespace loratrain {

/// Samples memory, power and clocks while a run trains.

/// How often samples are taken, and how many are kept.
struct SamplePace {
    double seconds = 10.0;          ///< between two, at least
    std::size_t most_lines = 2000;  ///< 2 or more
};

/// Samples memory, power and clocks of this rank's process and GPU while it trains, into
/// <run.dir>/devices/rank-N.jsonl. Rank 0 makes the folder. A rank that does not find it (its host
/// has another disk) records nothing; a file that cannot be written is given up.
///
/// A resumed run appends. A file of `most_lines` is thinned to at most half: the least distance of
/// samples is doubled as often as needed, and holds for later samples too. Main thread only.
class DeviceSampler {
  public:
    /// `allocated` returns the bytes allocated now (DeviceSample); what it refers to outlives the
    /// sampler.
    DeviceSampler(std::string folder, std::int32_t rank, std::function<std::uint64_t()> allocated,
                  GpuSensors sensors, SamplePace pace = {});

    /// Takes a sample if the last one is old enough. Call often. Does nothing before the first
    /// take().
    void look();
    /// Takes one now.
    void take();
    /// Energy of the GPU from the first to the last sample: its power, integrated by trapezoids.
    /// None if fewer than two samples have a power.
    std::optional<double> joules() const { return joules_; }

  private:
    using Clock = std::chrono::steady_clock;

    DeviceSample sample() const;
    void open();
    void append(const DeviceSample& sample);
    void add_energy(const DeviceSample& sample);
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
    std::optional<DeviceSample> last_power_;  ///< the last sample that has it
    std::optional<double> joules_;
};

}  // namespace loratrain
