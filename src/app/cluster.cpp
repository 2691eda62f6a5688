#include "app/cluster.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "comm/collective.h"

namespace loratrain {

namespace {

/// Value in bytes of a "Name:   123 kB" line of a /proc file; 0 when absent.
std::uint64_t proc_value(const char* file, const std::string& name) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        if (line.rfind(name + ":", 0) != 0) continue;
        std::istringstream fields(line.substr(name.size() + 1));
        std::uint64_t kilobytes = 0;
        fields >> kilobytes;
        return kilobytes * 1024;
    }
    return 0;
}

}  // namespace

Cluster describe_cluster(const MpiSession& mpi, BackendKind backend) {
    Cluster cluster;
    cluster.ranks = mpi.size();
    cluster.ranks_per_node = mpi.local_size();
    cluster.backend = backend == BackendKind::automatic ? BackendKind::cpu : backend;
    const std::uint64_t share =
        proc_value("/proc/meminfo", "MemAvailable") / static_cast<std::uint64_t>(mpi.local_size());
    const auto shares = gather_numbers(mpi, share);
    cluster.bytes_per_rank = *std::min_element(shares.begin(), shares.end());
    return cluster;
}

void give_back_large_blocks() {
#ifdef M_MMAP_THRESHOLD
    constexpr int large = 1 << 20;
    mallopt(M_MMAP_THRESHOLD, large);
#endif
}

ResidentMemory resident_memory() {
    const char* file = "/proc/self/status";
    const std::uint64_t code = proc_value(file, "RssFile");
    return {proc_value(file, "VmRSS") - code, proc_value(file, "VmHWM") - code};
}

}  // namespace loratrain
