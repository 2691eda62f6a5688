#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/version.h"

namespace loratrain {

/// GPUs as a process sees them, and refusals of GPUs that cannot be used.
struct GpuInfo {
    int visible = 0;               ///< number of GPUs; 0 also in a program built without CUDA
    std::string bus_id;            ///< PCI bus id of this rank's GPU
    std::string name;              ///< "NVIDIA H200"
    std::uint64_t free_bytes = 0;  ///< memory of this rank's GPU
    int compute_capability = 0;    ///< of this rank's GPU; 90 is 9.0
    std::string failure;           ///< CUDA's reason why the GPU cannot be used now; "" = it can
};

/// Sets environment variables that CUDA reads at its first use in a process. Call it before that
/// (MPI may be the first user of CUDA) and before the process has threads.
void prepare_gpu_environment();

/// True if LORATRAIN_SHARE_GPU is set: ranks may share a GPU. Only for tests of pipelines with
/// fewer GPUs than ranks: messages go through the host, and the ranks take turns.
bool ranks_may_share_gpus();

/// The GPU of a rank: number local_rank modulo the number of visible GPUs. So a rank may see all
/// GPUs of the host, or its own GPU as number 0.
GpuInfo gpu_info(int local_rank);

/// Throws Error if `who` has a GPU and cannot use it: its memory is taken, or the driver is too old
/// or fails.
void require_no_failure(const GpuInfo& gpu, const std::string& who);

/// Bytes of shared memory that kernels may use per block of threads: `offered` by the GPU, and at
/// most LORATRAIN_MAX_SHARED_KIB if that is set, with which tests run code for older GPUs. Throws
/// InputError if the variable is no number of KiB.
int shared_memory_limit(std::size_t offered);

/// Throws InputError if the GPU named `gpu` offers a block of threads less shared memory than the
/// kernels for bf16 need.
void require_shared_memory(const std::string& gpu, std::size_t offered, std::size_t needed);

/// Throws InputError if the GPU has no fp8 products with a scale per row, which cuBLASLt has from
/// compute capability 9.0 on.
void require_fp8(const GpuInfo& gpu);

/// Throws InputError: none of the architectures that the program was built for runs on the GPU.
/// `why` is CUDA's reason.
[[noreturn]] void refuse_architecture(const GpuInfo& gpu, const std::string& why);

/// CUDA's runtime and the driver, as loaded; empty in a program built without CUDA.
std::vector<Library> gpu_libraries();

}  // namespace loratrain
