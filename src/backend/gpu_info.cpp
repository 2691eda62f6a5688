#include "backend/gpu_info.h"

#ifdef LORATRAIN_WITH_CUDA

#include <cuda_runtime_api.h>

#include <array>

namespace loratrain {

GpuInfo gpu_info(int local_rank) {
    GpuInfo info;
    if (cudaGetDeviceCount(&info.visible) != cudaSuccess || info.visible == 0) {
        cudaGetLastError();
        info.visible = 0;
        return info;
    }
    const int device = local_rank % info.visible;
    std::array<char, 32> bus_id{};
    cudaDeviceProp properties{};
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    if (cudaSetDevice(device) != cudaSuccess ||
        cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device) !=
            cudaSuccess ||
        cudaGetDeviceProperties(&properties, device) != cudaSuccess ||
        cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
        cudaGetLastError();
        return {};
    }
    info.bus_id = bus_id.data();
    info.name = properties.name;
    info.free_bytes = free_bytes;
    return info;
}

}  // namespace loratrain

#else

namespace loratrain {

GpuInfo gpu_info(int /*local_rank*/) {
    return {};
}

}  // namespace loratrain

#endif
