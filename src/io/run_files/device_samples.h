#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace loratrain {

/// What a GPU's sensors show; what they do not tell is empty.
struct GpuReading {
    std::optional<double> watts;    ///< of the whole card, also where a rank has a part (MIG)
    std::optional<double> sm_mhz;   ///< clock of the multiprocessors
    std::optional<double> celsius;  ///< of the GPU's core
    std::optional<std::uint64_t> used_bytes;  ///< of its memory, by all processes
    std::optional<bool> slowed_by_power;      ///< its clocks are lowered for its power's sake
    std::optional<bool> slowed_by_heat;
};

/// What a rank's process and its GPU are like at a moment of the training: a line of
/// <run.dir>/devices/rank-N.jsonl (measure/device_sampler.h writes it). What is not known is empty,
/// and the line lacks it.
struct DeviceSample {
    double time = 0.0;     ///< seconds since 1970
    double seconds = 0.0;  ///< since this start of the run began to train
    std::int32_t rank = 0;
    std::uint64_t resident_bytes = 0;   ///< of the process in the host's memory (system.h)
    std::uint64_t allocated_bytes = 0;  ///< as memory.json counts it, at this moment
    GpuReading gpu{};
};

inline constexpr const char* device_folder_name = "devices";

/// "rank-3.jsonl"
std::string device_file_name(std::int32_t rank);

/// One line, without its end; times and watts to a tenth.
std::string to_line(const DeviceSample& sample);

/// All whole lines of the text of such a file; others are left out.
std::vector<DeviceSample> device_samples(const std::string& text);

}  // namespace loratrain
