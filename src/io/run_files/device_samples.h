#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace loratrain {

/// Samples of processes and GPUs during training: <run.dir>/devices/rank-N.jsonl.

/// Readings of a GPU's sensors; empty where a sensor reports nothing.
struct GpuReading {
    std::optional<double> watts;    ///< of the whole card, even if the rank has a part of it (MIG)
    std::optional<double> sm_mhz;   ///< clock of the multiprocessors
    std::optional<double> celsius;  ///< of the GPU's core
    std::optional<std::uint64_t> used_bytes;  ///< of the GPU's memory, by all processes
    std::optional<bool> slowed_by_power;      ///< clocks are lowered to limit the power
    std::optional<bool> slowed_by_heat;
};

/// A rank's process and GPU at one moment: a line of the file (measure/device_sampler.h writes it).
/// Unknown values are empty, and the line lacks their keys.
struct DeviceSample {
    double time = 0.0;     ///< seconds since 1970
    double seconds = 0.0;  ///< since training began in this start of the run
    std::int32_t rank = 0;
    std::uint64_t resident_bytes = 0;   ///< of the process in the host's memory (system.h)
    std::uint64_t allocated_bytes = 0;  ///< as memory.json counts them
    GpuReading gpu{};
};

inline constexpr const char* device_folder_name = "devices";

/// "rank-3.jsonl"
std::string device_file_name(std::int32_t rank);

/// A sample as a line, without its end; times and watts to one decimal.
std::string to_line(const DeviceSample& sample);

/// The samples of all whole lines of a file; others are left out.
std::vector<DeviceSample> device_samples(const std::string& text);

}  // namespace loratrain
