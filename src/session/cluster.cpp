#include "session/cluster.h"

#include <algorithm>
#include <map>

#include "backend/gpu_info.h"
#include "base/error.h"
#include "base/system.h"
#include "comm/collective.h"
#include "plan/cost/built_in_costs.h"
#include "plan/cost/device.h"
#include "plan/memory/engine_memory.h"

namespace loratrain {

namespace {

/// Kept free on a GPU for what no plan counts: code that cuBLASLt loads at first use (the CUDA
/// context is there when free memory is measured); with several ranks nccl_bytes besides.
constexpr std::uint64_t gpu_library_bytes = std::uint64_t{512} << 20U;

std::uint64_t usable_gpu_bytes(std::uint64_t free_bytes, int ranks) {
    const std::uint64_t kept = gpu_library_bytes + (ranks > 1 ? nccl_bytes : 0);
    return free_bytes > kept ? free_bytes - kept : 1;
}

std::uint64_t ranks_per_gpu(const MpiSession& mpi, const GpuInfo& gpu) {
    const int ranks = ranks_may_share_gpus() ? (mpi.host_size() - 1) / gpu.visible + 1 : 1;
    return static_cast<std::uint64_t>(ranks);
}

/// Collective, but called inside agree(): gathers first, throws after.
void check_gpus(const MpiSession& mpi, const GpuInfo& gpu) {
    const std::string device = gpu.visible > 0 ? mpi.host() + " " + gpu.bus_id : "";
    const std::vector<std::string> devices = gather_texts(mpi, device);
    Problems problems;
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
        const auto first = std::find(devices.begin(), devices.end(), devices[rank]);
        const auto other = static_cast<std::size_t>(first - devices.begin());
        if (devices[rank].empty()) {
            problems.add("run.backend",
                         cat("rank ", rank, " on host ", mpi.hosts()[rank],
                             " sees no GPU, or the program was built without CUDA"),
                         "use run.backend: cpu, or check nvidia-smi and CUDA_VISIBLE_DEVICES");
        } else if (other < rank && !ranks_may_share_gpus()) {
            problems.add("run.backend",
                         cat("ranks ", other, " and ", rank, " would share GPU ", devices[rank]),
                         "start one rank per GPU");
        }
    }
    problems.throw_if_any();
}

}  // namespace

std::vector<std::int32_t> host_numbers(const MpiSession& mpi) {
    std::map<std::string, std::int32_t> numbers;
    std::vector<std::int32_t> hosts;
    for (const std::string& host : mpi.hosts()) {
        const auto next = static_cast<std::int32_t>(numbers.size());
        hosts.push_back(numbers.emplace(host, next).first->second);
    }
    return hosts;
}

Cluster describe_cluster(const MpiSession& mpi, BackendKind backend) {
    Cluster cluster;
    cluster.ranks = mpi.size();
    cluster.ranks_per_node = mpi.host_size();
    cluster.hosts = host_numbers(mpi);
    const GpuInfo gpu = backend == BackendKind::cpu ? GpuInfo{} : gpu_info(mpi.host_rank());
    agree(mpi, [&] { require_no_failure(gpu, cat("rank ", mpi.rank(), " on host ", mpi.host())); });
    const bool all_have_gpus = !any_rank(mpi, gpu.visible == 0);
    if (backend == BackendKind::automatic) {
        backend = all_have_gpus ? BackendKind::cuda : BackendKind::cpu;
    }
    cluster.backend = backend;
    cluster.device = backend == BackendKind::cuda ? known_device(gpu.name) : "cpu";
    if (backend == BackendKind::cuda) agree(mpi, [&] { check_gpus(mpi, gpu); });
    const std::uint64_t share =
        backend == BackendKind::cuda
            ? usable_gpu_bytes(gpu.free_bytes / ranks_per_gpu(mpi, gpu), mpi.size())
            : proc_value("/proc/meminfo", "MemAvailable") /
                  static_cast<std::uint64_t>(mpi.host_size());
    const auto shares = gather_numbers(mpi, share);
    cluster.bytes_per_rank = *std::min_element(shares.begin(), shares.end());
    if (backend == BackendKind::cuda) {
        const auto host =
            gather_numbers(mpi, available_memory() / static_cast<std::uint64_t>(mpi.host_size()));
        cluster.host_bytes_per_rank = *std::min_element(host.begin(), host.end());
    }
    return cluster;
}

Cluster with_ranks(Cluster cluster, const ImaginedRanks& ranks) {
    if (ranks.count == cluster.ranks && !ranks.per_host) return cluster;
    const int per_host = std::min(ranks.per_host.value_or(ranks.count), ranks.count);
    if (cluster.backend == BackendKind::cpu) {
        const auto started = static_cast<std::uint64_t>(cluster.ranks_per_node);
        cluster.bytes_per_rank =
            cluster.bytes_per_rank * started / static_cast<std::uint64_t>(per_host);
    }
    cluster.ranks = ranks.count;
    cluster.ranks_per_node = per_host;
    cluster.hosts.clear();
    return cluster;
}

Cluster imagined_cluster(const std::string& name, const ImaginedRanks& ranks,
                         const MpiSession& mpi) {
    const auto device = find_device(name);
    if (!device) {
        throw InputError("--device", cat("'", name, "' is not known"),
                         cat("give one of: ", join(device_names(), ", ")));
    }
    Cluster cluster;
    if (device->backend == BackendKind::cpu) cluster = describe_cluster(mpi, BackendKind::cpu);
    cluster = with_ranks(cluster, ranks);
    cluster.backend = device->backend;
    cluster.device = device->name;
    if (device->bytes > 0) cluster.bytes_per_rank = usable_gpu_bytes(device->bytes, ranks.count);
    return cluster;
}

std::string describe_devices(const MpiSession& mpi, BackendKind backend) {
    const GpuInfo gpu = backend == BackendKind::cuda ? gpu_info(mpi.host_rank()) : GpuInfo{};
    const std::string mine = gpu.visible > 0 ? ", " + gpu.name + " " + gpu.bus_id : "";
    std::string text;
    int rank = 0;
    for (const std::string& device : gather_texts(mpi, mpi.host() + mine)) {
        text += cat("  rank ", rank++, ": ", device, "\n");
    }
    return text;
}

}  // namespace loratrain
