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
};

constexpr std::array<Entry, 10> entries{{{"h200", BackendKind::cuda, 139},
                                         {"h100", BackendKind::cuda, 78},
                                         {"a100", BackendKind::cuda, 78},
                                         {"a100-40", BackendKind::cuda, 38},
                                         {"l40s", BackendKind::cuda, 43},
                                         {"a6000", BackendKind::cuda, 46},
                                         {"a40", BackendKind::cuda, 43},
                                         {"a10", BackendKind::cuda, 21},
                                         {"l4", BackendKind::cuda, 21},
                                         {"cpu", BackendKind::cpu, 0}}};

}  // namespace

std::optional<Device> find_device(std::string_view name) {
    for (const Entry& entry : entries) {
        if (entry.name == name) {
            return Device{std::string(name), entry.backend, entry.gibibytes * gibibyte};
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
