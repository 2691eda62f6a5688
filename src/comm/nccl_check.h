#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "base/error.h"

namespace loratrain {

/// Errors of CUDA and NCCL in the sources that use both. Only in programs built with NCCL.

/// Throws Error with `what`, the call that failed, and the library's text.
inline void check_cuda(cudaError_t code, const char* what) {
    if (code != cudaSuccess) throw Error(cat(what, ": ", cudaGetErrorString(code)));
}

inline void check_nccl(ncclResult_t code, const char* what) {
    if (code != ncclSuccess) throw Error(cat(what, ": ", ncclGetErrorString(code)));
}

/// What NCCL has found wrong with a communicator since; null = nothing.
inline const char* failure_of(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    if (asked == ncclSuccess) asked = state;
    const bool good = asked == ncclSuccess || asked == ncclInProgress;
    return good ? nullptr : ncclGetErrorString(asked);
}

}  // namespace loratrain
