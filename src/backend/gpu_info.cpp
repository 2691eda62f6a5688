#include "backend/gpu_info.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/system.h"
#include "base/text.h"

namespace loratrain {

bool ranks_may_share_gpus() {
    return !environment("LORATRAIN_SHARE_GPU").empty();
}

void require_no_failure(const GpuInfo& gpu, const std::string& who) {
    if (gpu.failure.empty()) return;
    throw Error(cat(
        who, " cannot use its GPU: ", gpu.failure,
        "\n    nvidia-smi shows what else uses it and its driver; run.backend: cpu needs none"));
}

void require_shared_memory(const std::string& gpu, std::size_t offered, std::size_t needed) {
    if (offered >= needed) return;
    throw InputError(
        "run.backend",
        cat("'cuda' in bf16 needs ", human_bytes(needed),
            " of shared memory per thread block, but ", gpu, " has ", human_bytes(offered)),
        "use a GPU of compute capability 8.0 or more, model.precision: fp32 or "
        "run.backend: cpu");
}

int shared_memory_limit(std::size_t offered) {
    constexpr const char* name = "LORATRAIN_MAX_SHARED_KIB";
    const std::string text = environment(name);
    std::size_t limit = offered;
    if (!text.empty()) {
        std::size_t kib = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), kib);
        if (error != std::errc() || end != text.data() + text.size() || kib == 0 || kib > 1024) {
            throw InputError(name, cat("'", text, "' is not a number of KiB"),
                             "give 99, 163 or 227, or do not set it");
        }
        limit = std::min(limit, kib * 1024);
    }
    return static_cast<int>(limit);
}

void require_fp8(const GpuInfo& gpu) {
    constexpr int least = 90;
    if (gpu.compute_capability >= least) return;
    throw InputError("model.precision",
                     cat("fp8 needs a GPU of compute capability 9.0 or more, but ",
                         gpu.name.empty() ? "no GPU" : gpu.name, " has ",
                         gpu.compute_capability / 10, ".", gpu.compute_capability % 10),
                     "use model.precision: bf16, or a GPU that has it (H100, H200)");
}

void refuse_architecture(const GpuInfo& gpu, const std::string& why) {
    const std::string number = std::to_string(gpu.compute_capability);
    throw InputError("run.backend",
                     cat("this program has no GPU code for ", gpu.name, " (compute capability ",
                         gpu.compute_capability / 10, ".", gpu.compute_capability % 10, "): ", why,
                         "; it was built for CMAKE_CUDA_ARCHITECTURES=", cuda_architectures()),
                     cat("build with -DCMAKE_CUDA_ARCHITECTURES=", number,
                         ", or for several GPUs with \"80;90\""));
}

}  // namespace loratrain

#ifdef LORATRAIN_WITH_CUDA

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

namespace loratrain {

namespace {

/// 12090 -> "12.9".
std::string cuda_version(int number) {
    return number > 0 ? cat(number / 1000, ".", number / 10 % 100) : "none";
}

/// First line of what the kernel module says; "none" without one.
std::string driver_text() {
    std::ifstream file("/proc/driver/nvidia/version");
    std::string line;
    std::getline(file, line);
    return line.empty() ? "none" : line;
}

/// Of CUDA that the driver knows; 0 without one.
int driver_version() {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

GpuInfo without_gpu(cudaError_t error) {
    static_cast<void>(cudaGetLastError());
    const bool none = error == cudaSuccess || error == cudaErrorNoDevice || driver_version() == 0;
    GpuInfo info;
    if (!none) info.failure = cat(cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
    return info;
}

}  // namespace

std::vector<Library> gpu_libraries() {
    int runtime = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
    return {{"CUDA runtime", cuda_version(runtime)},
            {"CUDA of the driver", cuda_version(driver_version())},
            {"NVIDIA driver", driver_text()}};
}

void prepare_gpu_environment() {
    // The most there are. Streams that share a connection wait for each other's heads: one that
    // waits for another rank (comm/stream_flags.h) could hold up what that rank waits for.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    // A kernel loaded at its first use waits for the whole device then, messages included.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    // NCCL refuses two ranks of a host on one GPU.
    if (ranks_may_share_gpus()) setenv("NCCL_HOSTID", cat("loratrain-", getpid()).c_str(), 1);
}

GpuInfo gpu_info(int local_rank) {
    GpuInfo info;
    const cudaError_t counted = cudaGetDeviceCount(&info.visible);
    if (counted != cudaSuccess || info.visible == 0) return without_gpu(counted);
    const int device = local_rank % info.visible;
    std::array<char, 32> bus_id{};
    cudaDeviceProp properties{};
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    cudaError_t error = cudaSetDevice(device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device);
    }
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, device);
    if (error == cudaSuccess) error = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (error != cudaSuccess) return without_gpu(error);
    info.bus_id = bus_id.data();
    info.name = properties.name;
    info.free_bytes = free_bytes;
    info.compute_capability = 10 * properties.major + properties.minor;
    return info;
}

}  // namespace loratrain

#else

namespace loratrain {

std::vector<Library> gpu_libraries() {
    return {};
}

void prepare_gpu_environment() {}

GpuInfo gpu_info(int /*local_rank*/) {
    return {};
}

}  // namespace loratrain

#endif
