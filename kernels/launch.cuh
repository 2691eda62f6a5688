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

/// Rows can be read in 16-byte pieces from column 0 on.
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

template <int N, class Body>
__global__ void __launch_bounds__(block_threads)
    for_each_element(std::uint32_t count, std::uint32_t per_row, Body body) {
    const std::uint32_t i = blockIdx.x * block_threads + threadIdx.x;
    if (i >= count) return;
    const std::uint32_t row = i / per_row;
    body(static_cast<std::int64_t>(row), static_cast<std::int64_t>(i - row * per_row) * N);
}

/// body(row, col) for every N-th column of [rows, cols]; N divides cols.
template <int N, class Body>
cudaError_t launch_elements(cudaStream_t stream, std::int64_t rows, std::int64_t cols,
                            const Body& body) {
    const std::int64_t count = rows * (cols / N);
    if (count == 0) return cudaSuccess;
    if (count > INT64_C(0xffffff00)) return cudaErrorInvalidValue;
    const auto blocks = static_cast<unsigned>((count + block_threads - 1) / block_threads);
    for_each_element<N><<<blocks, block_threads, 0, stream>>>(
        static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(cols / N), body);
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
