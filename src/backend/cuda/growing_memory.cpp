#include "backend/cuda/growing_memory.h"

#include <algorithm>

#include "backend/cuda/check.h"
#include "base/arithmetic.h"
#include "base/device_memory.h"
#include "base/error.h"

namespace loratrain {

GrowingMemory::~GrowingMemory() {
    free_counted(data_, bytes_, use_);
}

void* GrowingMemory::try_reserve(std::size_t bytes) {
    if (bytes <= bytes_) return data_;
    constexpr std::size_t step = device_memory::growing_step;
    bytes = round_up(bytes, step);
    free_counted(data_, bytes_, use_);
    data_ = allocate_counted(bytes, use_);
    bytes_ = data_ == nullptr ? 0 : bytes;
    return data_;
}

void* GrowingMemory::reserve(std::size_t bytes, const char* what) {
    void* data = try_reserve(bytes);
    if (data == nullptr && bytes > 0) {
        throw Error(cat("out of GPU memory: ", what, " need ", human_bytes(bytes),
                        "; nvidia-smi shows which other process holds memory of this GPU"));
    }
    return data;
}

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
