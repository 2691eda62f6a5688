#include "backend/cuda/growing_memory.h"

#include "backend/cuda/check.h"

namespace loratrain {

GrowingMemory::~GrowingMemory() {
    cudaFree(data_);
}

void* GrowingMemory::try_reserve(std::size_t bytes) {
    if (bytes <= bytes_) return data_;
    CUDA_CHECK(cudaFree(data_));
    data_ = nullptr;
    bytes_ = 0;
    const cudaError_t error = cudaMalloc(&data_, bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        data_ = nullptr;
        return nullptr;
    }
    CUDA_CHECK(error);
    bytes_ = bytes;
    return data_;
}

void* GrowingMemory::reserve(std::size_t bytes, const char* what) {
    void* data = try_reserve(bytes);
    if (data == nullptr && bytes > 0) {
        throw Error(cat("not enough device memory for ", bytes, " bytes of ", what));
    }
    return data;
}

}  // namespace loratrain
