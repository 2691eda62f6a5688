#pragma once

#include <cstdint>
#include <initializer_list>

#include "device_math.cuh"

namespace loratrain::kernels {

constexpr unsigned block_threads = 256;

/// Calls f(T{}) with the element type of a matrix.
template <class F>
cudaError_t with_type(Element type, const F& f) {
    return type == Element::f32 ? f(float{}) : f(Bf16{});
}

template <class T>
T* pointer(const Matrix& x) {
    return static_cast<T*>(x.data);
}

inline bool aligned_16(const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

/// True if rows can be read in pieces of 16 bytes from column 0 on.
inline bool rows_aligned(const Matrix& x) {
    const std::int64_t size = x.type == Element::f32 ? 4 : 2;
    return aligned_16(x.data) && x.ld * size % 16 == 0;
}

inline bool all_wide(std::initializer_list<const Matrix*> operands) {
    for (const Matrix* x : operands) {
        if (!rows_aligned(*x) || x->cols % wide != 0) return false;
    }
    return true;
}

/// Lets the next kernel of the stream start as soon as there is room, if launch_early() queued it.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// Returns when the kernel before has ended and its results can be read.
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

/// Number of multiprocessors of the current device.
inline int count_processors() {
    int device = 0;
    int count = 1;
    if (cudaGetDevice(&device) != cudaSuccess) return count;
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
}

/// Allows a kernel `shared` bytes per block, and the multiprocessor as much for several blocks as
/// one that offers a block `limit` bytes: all of this multiprocessor's, unless tests lower the
/// limit.
inline cudaError_t allow_shared(const void* kernel, int shared, int limit) {
    constexpr int reserved = 1024;  // of each block
    int device = 0;
    int of_processor = 0;
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (error == cudaSuccess) error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&of_processor, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                                       device);
    }
    if (error != cudaSuccess) return error;
    const std::int64_t wanted = std::int64_t{100} * (limit + reserved);
    const auto percent = static_cast<int>((wanted + of_processor - 1) / of_processor);
    return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                percent < 100 ? percent : 100);
}

/// True if a kernel runs as code for Hopper, by what it was compiled for, not by the device: PTX
/// for older GPUs neither waits for the kernel before nor supports clusters.
template <class... Parameters>
bool is_code_for_hopper(void (*kernel)(Parameters...)) {
    constexpr int hopper = 90;
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&
           attributes.ptxVersion >= hopper;
}

/// Blocks of a launch. Blocks of a cluster read each other's shared memory; `cluster` divides their
/// number.
struct LaunchShape {
    dim3 grid;
    unsigned threads = block_threads;
    std::size_t shared = 0;
    unsigned cluster = 1;  ///< more than 1 only for code for Hopper
};

/// Launches a kernel whose blocks may start before the kernel queued ahead has ended (programmatic
/// dependent launch, from sm_90 on). The kernel calls wait_for_kernel_before() before it touches
/// anything that the other kernel writes.
template <class... Parameters, class... Arguments>
cudaError_t launch_early(cudaStream_t stream, void (*kernel)(Parameters...),
                         const LaunchShape& shape, const Arguments&... arguments) {
    static const bool supported = is_code_for_hopper(kernel);
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = shape.cluster;
    attributes[1].val.clusterDim.y = 1;
    attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = shape.grid;
    config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = shape.shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = supported ? (shape.cluster > 1 ? 2 : 1) : 0;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

template <class... Parameters, class... Arguments>
cudaError_t launch_early(cudaStream_t stream, void (*kernel)(Parameters...), dim3 grid,
                         unsigned threads, std::size_t shared, const Arguments&... arguments) {
    return launch_early(stream, kernel, LaunchShape{grid, threads, shared}, arguments...);
}

/// launch_early() of a kernel whose blocks take `shared` bytes, more than the default limit. The
/// first launch raises the limit with allow_shared().
template <auto kernel, int shared, class... Arguments>
cudaError_t launch_with_shared(cudaStream_t stream, int shared_limit, dim3 grid, unsigned threads,
                               const Arguments&... arguments) {
    static const cudaError_t allowed =
        allow_shared(reinterpret_cast<const void*>(kernel), shared, shared_limit);
    if (allowed != cudaSuccess) return allowed;
    return launch_early(stream, kernel, grid, threads, shared, arguments...);
}

template <int N, class Body>
__global__ void __launch_bounds__(block_threads)
    for_each_element(std::uint32_t count, std::uint32_t per_row, Body body) {
    wait_for_kernel_before();
    const std::uint32_t i = blockIdx.x * block_threads + threadIdx.x;
    if (i >= count) return;
    const std::uint32_t row = i / per_row;
    body(static_cast<std::int64_t>(row), static_cast<std::int64_t>(i - row * per_row) * N);
}

/// Calls body(row, col) for every N-th column of [rows, cols]; N divides cols.
template <int N, class Body>
cudaError_t launch_elements(cudaStream_t stream, std::int64_t rows, std::int64_t cols,
                            const Body& body) {
    const std::int64_t count = rows * (cols / N);
    if (count == 0) return cudaSuccess;
    if (count > INT64_C(0xffffff00)) return cudaErrorInvalidValue;
    const auto blocks = static_cast<unsigned>((count + block_threads - 1) / block_threads);
    return launch_early(stream, for_each_element<N, Body>, blocks, block_threads, 0,
                        static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(cols / N),
                        body);
}

}  // namespace loratrain::kernels
