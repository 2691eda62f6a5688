#include "base/system.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/text.h"

namespace loratrain {

namespace {

/// The whole number in a file, or behind `name` in a line of it; none for other texts ("max").
std::optional<std::uint64_t> number_in_file(const char* file, const std::string& name = "") {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with(name)) continue;
        std::istringstream fields(line.substr(name.size()));
        std::uint64_t number = 0;
        if (fields >> number) return number;
    }
    return std::nullopt;
}

}  // namespace

double unix_time() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::string local_time(double unix_seconds, const char* format) {
    constexpr double year_9999 = 253402300799.0;  // beyond it no format of strftime is sure to fit
    const bool known = unix_seconds > -year_9999 && unix_seconds < year_9999;
    const auto seconds = static_cast<std::time_t>(known ? unix_seconds : 0.0);
    std::tm local{};
    localtime_r(&seconds, &local);
    std::array<char, 64> text{};
    std::strftime(text.data(), text.size(), format, &local);
    return text.data();
}

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

std::uint64_t proc_value(const char* file, const std::string& name) {
    return number_in_file(file, name + ":").value_or(0) * 1024;
}

std::string parent_name() {
    std::ifstream in(cat("/proc/", getppid(), "/comm"));
    std::string name;
    std::getline(in, name);
    return name;
}

std::uint64_t available_memory() {
    const std::uint64_t available = proc_value("/proc/meminfo", "MemAvailable");
    const auto limit = number_in_file("/sys/fs/cgroup/memory.max");
    const auto used = number_in_file("/sys/fs/cgroup/memory.current");
    if (!limit || !used) return available;
    // Cached pages of files make way.
    const auto cached = number_in_file("/sys/fs/cgroup/memory.stat", "inactive_file ").value_or(0);
    const std::uint64_t kept = *used - std::min(*used, cached);
    return std::min(available, *limit - std::min(*limit, kept));
}

ResidentMemory resident_memory() {
    const char* file = "/proc/self/status";
    const std::uint64_t code = proc_value(file, "RssFile");
    return {proc_value(file, "VmRSS") - code, proc_value(file, "VmHWM") - code};
}

double processor_seconds() {
    timespec spent{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace loratrain
