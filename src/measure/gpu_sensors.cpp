#include "measure/gpu_sensors.h"

#include <dlfcn.h>

#include <utility>

/// NVML's names and numbers: NVIDIA's NVML API Reference Guide. Its functions return 0 where they
/// have done what was asked.

namespace loratrain {

namespace {

using NvmlDevice = void*;

constexpr int sm_clock = 1;          // NVML_CLOCK_SM
constexpr int core_temperature = 0;  // NVML_TEMPERATURE_GPU

// nvmlClocksEventReasons
constexpr unsigned long long software_power_cap = 0x4;
constexpr unsigned long long software_thermal = 0x20;
constexpr unsigned long long hardware_thermal = 0x40;
constexpr unsigned long long hardware_power_brake = 0x80;

/// None where the function is missing or has no answer.
template <class Value, class Function, class... Arguments>
std::optional<Value> asked(Function function, Arguments... arguments) {
    Value value{};
    if (function == nullptr || function(arguments..., &value) != 0) return std::nullopt;
    return value;
}

std::optional<double> scaled(const std::optional<unsigned int>& value, double factor) {
    if (!value) return std::nullopt;
    return factor * *value;
}

}  // namespace

class GpuSensors::Nvml {
  public:
    // GCC 13.3 crashes where a class outside the anonymous namespace has a member of a type inside
    // it and the source is compiled together with others.
    struct MemoryInfo {  // nvmlMemory_t
        unsigned long long total;
        unsigned long long free;
        unsigned long long used;
    };

    explicit Nvml(const char* library) : library_(::dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
        if (library_ == nullptr) return;
        find(init_, "nvmlInit_v2");
        find(shutdown_, "nvmlShutdown");
        find(handle_by_bus_id_, "nvmlDeviceGetHandleByPciBusId_v2");
        find(power_, "nvmlDeviceGetPowerUsage");
        find(clock_, "nvmlDeviceGetClockInfo");
        find(temperature_, "nvmlDeviceGetTemperature");
        find(memory_, "nvmlDeviceGetMemoryInfo");
        find(slowdowns_, "nvmlDeviceGetCurrentClocksEventReasons");
        if (slowdowns_ == nullptr) {  // drivers before 535
            find(slowdowns_, "nvmlDeviceGetCurrentClocksThrottleReasons");
        }
        started_ = init_ != nullptr && shutdown_ != nullptr && init_() == 0;
    }
    ~Nvml() {
        if (started_) shutdown_();
        if (library_ != nullptr) ::dlclose(library_);
    }
    Nvml(const Nvml&) = delete;
    Nvml& operator=(const Nvml&) = delete;

    bool open(const std::string& bus_id) {
        return started_ && handle_by_bus_id_ != nullptr &&
               handle_by_bus_id_(bus_id.c_str(), &device_) == 0;
    }

    GpuReading read() const {
        GpuReading reading;
        reading.watts = scaled(asked<unsigned int>(power_, device_), 1e-3);
        reading.sm_mhz = scaled(asked<unsigned int>(clock_, device_, sm_clock), 1.0);
        reading.celsius = scaled(asked<unsigned int>(temperature_, device_, core_temperature), 1.0);
        if (const auto memory = asked<MemoryInfo>(memory_, device_)) {
            reading.used_bytes = memory->used;
        }
        if (const auto slowdowns = asked<unsigned long long>(slowdowns_, device_)) {
            reading.slowed_by_power =
                (*slowdowns & (software_power_cap | hardware_power_brake)) != 0;
            reading.slowed_by_heat = (*slowdowns & (software_thermal | hardware_thermal)) != 0;
        }
        return reading;
    }

  private:
    template <class Function>
    void find(Function& function, const char* name) {
        function = reinterpret_cast<Function>(::dlsym(library_, name));
    }

    void* library_;
    bool started_ = false;
    NvmlDevice device_ = nullptr;
    int (*init_)() = nullptr;
    int (*shutdown_)() = nullptr;
    int (*handle_by_bus_id_)(const char*, NvmlDevice*) = nullptr;
    int (*power_)(NvmlDevice, unsigned int*) = nullptr;  ///< milliwatts
    int (*clock_)(NvmlDevice, int, unsigned int*) = nullptr;
    int (*temperature_)(NvmlDevice, int, unsigned int*) = nullptr;
    int (*memory_)(NvmlDevice, MemoryInfo*) = nullptr;
    int (*slowdowns_)(NvmlDevice, unsigned long long*) = nullptr;
};

GpuSensors::GpuSensors() = default;

GpuSensors::GpuSensors(const std::string& bus_id, const char* library) {
    auto nvml = std::make_unique<Nvml>(library);
    if (nvml->open(bus_id)) nvml_ = std::move(nvml);
}

GpuSensors::GpuSensors(GpuSensors&&) noexcept = default;
GpuSensors& GpuSensors::operator=(GpuSensors&&) noexcept = default;
GpuSensors::~GpuSensors() = default;

GpuReading GpuSensors::read() const {
    return nvml_ ? nvml_->read() : GpuReading{};
}

}  // namespace loratrain
