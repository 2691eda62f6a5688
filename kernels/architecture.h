#pragma once

#include <cuda_runtime_api.h>

namespace loratrain::kernels {

/// Checks that the current device runs the code of this library, compiled for its architecture or
/// by the driver from PTX. Returns cudaSuccess, or CUDA's error, such as
/// cudaErrorNoKernelImageForDevice.
cudaError_t check_architecture();

}  // namespace loratrain::kernels
