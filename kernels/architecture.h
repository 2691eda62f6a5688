#pragma once

#include <cuda_runtime_api.h>

namespace loratrain::kernels {

/// cudaSuccess when the current device runs what this library was compiled for, by its own code or
/// by PTX that the driver compiles; else what CUDA says, such as cudaErrorNoKernelImageForDevice.
cudaError_t check_architecture();

}  // namespace loratrain::kernels
