#include "plan/cost/device.h"

#include <array>
#include <cctype>

namespace loratrain {

namespace {

constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30U;

struct Entry {
    std::string_view name;
    BackendKind backend;
    std::uint64_t gibibytes;
    double watts;
    double peak;  ///< FLOP/s, as peak_flop_rate() in bf16
    double seen_error = 0.0;
};

/// Watts and peaks: the makers' data sheets (H200, H100 and A100 as SXM modules). H200s drew 87% to
/// 99% of the watts while they trained models of 0.1 to 8 billion parameters. Errors: an H200's of
/// whole runs of 8B and 70B on one and two, an H100's of what was fitted to it. Both:
/// tests/bench/RESULTS.md.
constexpr std::array<Entry, 10> entries{{{"h200", BackendKind::cuda, 139, 700, 989e12, 0.06},
                                         {"h100", BackendKind::cuda, 78, 700, 989e12, 0.04},
                                         {"a100", BackendKind::cuda, 78, 400, 312e12},
                                         {"a100-40", BackendKind::cuda, 38, 400, 312e12},
                                         {"l40s", BackendKind::cuda, 43, 350, 362e12},
                                         {"a6000", BackendKind::cuda, 46, 300, 154.8e12},
                                         {"a40", BackendKind::cuda, 43, 300, 149.7e12},
                                         {"a10", BackendKind::cuda, 21, 150, 125e12},
                                         {"l4", BackendKind::cuda, 21, 72, 121e12},
                                         {"cpu", BackendKind::cpu, 0, 0, 0}}};

}  // namespace

std::optional<Device> find_device(std::string_view name) {
    for (const Entry& entry : entries) {
        if (entry.name == name) {
            return Device{std::string(name), entry.backend, entry.gibibytes * gibibyte, entry.watts,
                          entry.seen_error};
        }
    }
    return std::nullopt;
}

std::string known_device(std::string_view gpu) {
    std::string word;
    for (std::size_t i = 0; i <= gpu.size(); ++i) {
        const auto c = static_cast<unsigned char>(i < gpu.size() ? gpu[i] : ' ');
        if (std::isalnum(c) != 0) {
            word += static_cast<char>(std::tolower(c));
            continue;
        }
        for (const Entry& entry : entries) {
            if (entry.backend == BackendKind::cuda && word.ends_with(entry.name)) {
                return std::string(entry.name);
            }
        }
        word.clear();
    }
    return std::string(gpu);
}

std::optional<double> peak_flop_rate(const std::string& gpu, DType compute) {
    const auto says = [&](const char* part) { return gpu.find(part) != std::string::npos; };
    const std::string name = known_device(gpu);
    const bool slower_board = name.starts_with("h") && (says("PCIe") || says("NVL"));
    if (compute != DType::bf16 || slower_board || says("MIG")) return std::nullopt;
    for (const Entry& entry : entries) {
        if (entry.backend == BackendKind::cuda && entry.name == name) return entry.peak;
    }
    return std::nullopt;
}

std::string_view usual_device(BackendKind backend) {
    return backend == BackendKind::cuda ? "h100" : "cpu";
}

std::string_view device_of(const Cluster& cluster) {
    return cluster.device.empty() ? usual_device(cluster.backend) : cluster.device;
}

std::string_view packing_device(const Plan& plan) {
    return plan.device.empty() ? usual_device(plan.backend) : plan.device;
}

}  // namespace loratrain
