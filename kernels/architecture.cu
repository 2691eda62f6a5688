#include "architecture.h"

namespace loratrain::kernels {

namespace {

__global__ void probe_kernel() {}

}  // namespace

cudaError_t check_architecture() {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, probe_kernel);
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    return error;
}

}  // namespace loratrain::kernels
