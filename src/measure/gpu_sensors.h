#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace loratrain {

/// What a GPU's sensors show; what it does not tell is empty.
struct GpuReading {
    std::optional<double> watts;    ///< of the whole card, also where a rank has a part (MIG)
    std::optional<double> sm_mhz;   ///< clock of the multiprocessors
    std::optional<double> celsius;  ///< of the GPU's core
    std::optional<std::uint64_t> used_bytes;  ///< of its memory, by all processes
    std::optional<bool> slowed_by_power;      ///< its clocks are lowered for its power's sake
    std::optional<bool> slowed_by_heat;
};

/// The sensors of one GPU, by NVML, which comes with NVIDIA's driver: opened where it is there, so
/// that the program neither needs nor links it. Nothing of it is an error.
class GpuSensors {
  public:
    static constexpr const char* driver_library = "libnvidia-ml.so.1";

    /// None: every reading is empty.
    GpuSensors();
    /// Of the GPU at that PCI bus id ("0000:1B:00.0"); none where library or GPU cannot be opened.
    explicit GpuSensors(const std::string& bus_id, const char* library = driver_library);
    GpuSensors(GpuSensors&&) noexcept;
    GpuSensors& operator=(GpuSensors&&) noexcept;
    ~GpuSensors();

    bool found() const { return nvml_ != nullptr; }
    /// Takes some milliseconds at most.
    GpuReading read() const;

  private:
    class Nvml;
    std::unique_ptr<Nvml> nvml_;  ///< null = none
};

}  // namespace loratrain
