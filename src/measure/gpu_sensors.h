#pragma once

#include <memory>
#include <string>

#include "io/run_files/device_samples.h"

namespace loratrain {

/// The sensors of one GPU, read by NVML. The library comes with NVIDIA's driver and is opened at
/// run time, so that the program does not need it. Without it, or if a reading fails, readings are
/// empty; nothing here is an error.
class GpuSensors {
  public:
    static constexpr const char* driver_library = "libnvidia-ml.so.1";

    /// No sensors: every reading is empty.
    GpuSensors();
    /// The sensors of the GPU at this PCI bus id ("0000:1B:00.0"); none if the library or the GPU
    /// cannot be opened.
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
