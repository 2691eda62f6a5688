#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "base/error.h"

namespace loratrain {

/// Error naming what was tried. Only in programs built with NCCL.
inline void check_cuda(cudaError_t code, const char* what) {
    if (code != cudaSuccess) throw Error(cat(what, ": ", cudaGetErrorString(code)));
}

inline void check_nccl(ncclResult_t code, const char* what) {
    if (code != ncclSuccess) throw Error(cat(what, ": ", ncclGetErrorString(code)));
}

/// What NCCL found wrong with a communicator meanwhile; null = nothing.
inline const char* failure_of(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    if (asked == ncclSuccess) asked = state;
    const bool good = asked == ncclSuccess || asked == ncclInProgress;
    return good ? nullptr : ncclGetErrorString(asked);
}

}  // namespace loratrain
