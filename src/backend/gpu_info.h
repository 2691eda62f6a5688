#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/version.h"

namespace loratrain {

/// What this process can see of GPUs.
struct GpuInfo {
    int visible = 0;               ///< 0 when there is none or the program was built without CUDA
    std::string bus_id;            ///< PCI bus id of the one this rank would use
    std::string name;              ///< "NVIDIA H200"
    std::uint64_t free_bytes = 0;  ///< of that one
    int compute_capability = 0;    ///< of that one: 90 is 9.0
    std::string failure;           ///< CUDA's word for why one that is there cannot be used now
};

/// Sets what CUDA reads of the environment when a process first uses it. Call before that, and
/// before there are threads: MPI may be the first to use CUDA.
void prepare_gpu_environment();

/// LORATRAIN_SHARE_GPU is set: ranks may share a GPU. Only for tests of pipelines where there are
/// fewer GPUs than ranks: messages go through the host, and the ranks take turns.
bool ranks_may_share_gpus();

/// The GPU of a rank is local_rank modulo the visible ones, so it works both when every rank sees
/// all GPUs of the host and when each sees its own as number 0.
GpuInfo gpu_info(int local_rank);

/// Throws Error when `who` has a GPU and cannot use it: its memory is taken, or the driver is too
/// old or fails.
void require_no_failure(const GpuInfo& gpu, const std::string& who);

/// Bytes of shared memory that kernels may use per block of threads of a GPU that offers `offered`:
/// no more than LORATRAIN_MAX_SHARED_KIB where that is set, by which tests run on one GPU what is
/// made for older ones. Throws InputError where it is not a number of KiB.
int shared_memory_limit(std::size_t offered);

/// Throws InputError when the GPU named `gpu` lets a block of threads have less shared memory than
/// the kernels for bf16 need.
void require_shared_memory(const std::string& gpu, std::size_t offered, std::size_t needed);

/// Throws InputError when that GPU has no fp8 products of rows with a scale each: cuBLASLt makes
/// them from compute capability 9.0 on.
void require_fp8(const GpuInfo& gpu);

/// Throws InputError when nothing that this program was built for runs on that GPU; `why` is CUDA's
/// word for it.
[[noreturn]] void refuse_architecture(const GpuInfo& gpu, const std::string& why);

/// CUDA's runtime and the driver, as loaded; empty when the program was built without CUDA.
std::vector<Library> gpu_libraries();

}  // namespace loratrain
