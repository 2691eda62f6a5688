#pragma once

#include "backend/gpu_info.h"
#include "mpi/mpi_main.h"

namespace loratrain::mpi_test {

/// On all ranks whether a host of the session has fewer GPUs than ranks, which may not share them.
/// Collective.
inline bool too_few_gpus() {
    prepare_gpu_environment();
    const GpuInfo gpu = gpu_info(session().host_rank());
    const bool few = gpu.visible < session().host_size() && !ranks_may_share_gpus();
    return any_rank(session(), gpu.visible == 0 || few);
}

}  // namespace loratrain::mpi_test
