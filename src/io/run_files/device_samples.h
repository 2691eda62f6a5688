#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace loratrain {

/// What a rank's process and its GPU are like at a moment of the training: a line of
/// <run.dir>/devices/rank-N.jsonl (measure/device_sampler.h writes it). What is not known is empty,
/// and the line lacks it.
struct DeviceSample {
    double time = 0.0;     ///< seconds since 1970
    double seconds = 0.0;  ///< since this start of the run began to train
    std::int32_t rank = 0;
    std::uint64_t resident_bytes = 0;   ///< of the process in the host's memory (resident_memory.h)
    std::uint64_t allocated_bytes = 0;  ///< as memory.json counts it, at this moment
    std::optional<double> watts{};
    std::optional<double> sm_mhz{};  ///< clock of the multiprocessors
    std::optional<double> celsius{};
    std::optional<std::uint64_t> used_bytes{};  ///< of the GPU's memory, by all of its processes
    std::optional<bool> slowed_by_power{};      ///< clocks are lowered to stay within the power
    std::optional<bool> slowed_by_heat{};
};

inline constexpr const char* device_folder_name = "devices";

/// "rank-3.jsonl"
std::string device_file_name(std::int32_t rank);

/// One line, without its end; times and watts to a tenth.
std::string to_line(const DeviceSample& sample);

/// All whole lines of the text of such a file; others are left out.
std::vector<DeviceSample> device_samples(const std::string& text);

}  // namespace loratrain
