#pragma once

#include <memory>
#include <string>

#include "io/run_files/device_samples.h"

namespace loratrain {

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
