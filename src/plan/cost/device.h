#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/tensor.h"
#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// A device to plan for. No such device need be in this machine.
struct Device {
    std::string name;  ///< as device_names() (built_in_costs.h)
    BackendKind backend = BackendKind::cpu;
    /// Memory of an idle device, without its driver's context; 0 = a host.
    std::uint64_t bytes = 0;
    double watts = 0.0;  ///< its power limit; 0 = not known
    /// Largest difference between measured speeds of whole runs and predictions by the built-in
    /// costs, as a share; 0 = no run was compared.
    double seen_error = 0.0;
};

/// The device of this name; none if device_names() does not have it.
std::optional<Device> find_device(std::string_view name);

/// "NVIDIA H200" -> "h200": the known device with which a word of the GPU's name ends; else the
/// name itself.
std::string known_device(std::string_view gpu);

/// Dense bf16 matrix FLOP/s that the maker states for a GPU, by its CUDA name; for H100 and H200
/// only the SXM boards. None for other GPUs, parts of one (MIG) and other types.
std::optional<double> peak_flop_rate(const std::string& gpu, DType compute);

/// The device of a plan that names none: "h100" or "cpu".
std::string_view usual_device(BackendKind backend);

/// The device whose built-in costs count: the cluster's, or the usual one of its backend.
std::string_view device_of(const Cluster& cluster);

/// The device whose built-in costs packings are made with; never measured costs (PackRules).
std::string_view packing_device(const Plan& plan);

}  // namespace loratrain
