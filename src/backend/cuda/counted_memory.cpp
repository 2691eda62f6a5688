#include "backend/cuda/counted_memory.h"

#include <algorithm>

#include "backend/cuda/check.h"

namespace loratrain {

void* allocate_counted(std::size_t bytes, MemoryUse* use) {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, bytes);
    if (error == cudaErrorMemoryAllocation) {
        static_cast<void>(cudaGetLastError());
        return nullptr;
    }
    CUDA_CHECK(error);
    if (use != nullptr) {
        use->current += bytes;
        use->peak = std::max(use->peak, use->current);
    }
    return data;
}

void free_counted(void* data, std::size_t bytes, MemoryUse* use) {
    if (data == nullptr) return;
    cudaFree(data);
    if (use != nullptr) use->current -= bytes;
}

}  // namespace loratrain
