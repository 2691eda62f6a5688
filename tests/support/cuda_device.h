#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace loratrain {

/// Empty when a GPU can be used, else why not.
inline std::string missing_gpu() {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) return cudaGetErrorString(error);
    return count == 0 ? "no GPU" : "";
}

/// Skips a test without a GPU; fails it when LORATRAIN_TEST_REQUIRE_GPUS asks for one.
#define LORATRAIN_NEED_GPU()                                                    \
    do {                                                                        \
        const std::string why = ::loratrain::missing_gpu();                     \
        const char* required = std::getenv("LORATRAIN_TEST_REQUIRE_GPUS");      \
        if (!why.empty()) {                                                     \
            if (required != nullptr && std::atoi(required) >= 1) FAIL() << why; \
            GTEST_SKIP() << why;                                                \
        }                                                                       \
    } while (false)

inline void require(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// An array in GPU memory, for tests of CUDA classes below the Backend.
template <class T>
class GpuArray {
  public:
    explicit GpuArray(const std::vector<T>& values) : count_(values.size()) {
        require(cudaMalloc(&data_, bytes() + sizeof(T)));
        require(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
    }
    ~GpuArray() { cudaFree(data_); }
    GpuArray(GpuArray&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), count_(other.count_) {}
    GpuArray(const GpuArray&) = delete;
    GpuArray& operator=(const GpuArray&) = delete;

    T* data() const { return static_cast<T*>(data_); }
    std::vector<T> download() const {
        std::vector<T> result(count_);
        require(cudaDeviceSynchronize());
        require(cudaMemcpy(result.data(), data_, bytes(), cudaMemcpyDeviceToHost));
        return result;
    }

  private:
    std::size_t bytes() const { return count_ * sizeof(T); }

    void* data_ = nullptr;
    std::size_t count_ = 0;
};

}  // namespace loratrain
