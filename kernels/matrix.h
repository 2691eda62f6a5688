#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace loratrain::kernels {

/// Matrices as the launchers of this folder take them.
///
/// Every launcher queues its work on `stream`, allocates nothing, accepts zero rows or columns, and
/// returns the error of the launch. Results do not depend on timing.

enum class Element : std::uint8_t { f32, bf16 };

/// A row-major matrix [rows, cols] in device memory, with a row stride of `ld` elements.
struct Matrix {
    void* data = nullptr;
    Element type = Element::f32;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;
};

}  // namespace loratrain::kernels
