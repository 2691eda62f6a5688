#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace loratrain::kernels {

enum class Element : std::uint8_t { f32, bf16 };

/// Row-major [rows, cols] in device memory, row stride `ld` in elements.
struct Matrix {
    void* data = nullptr;
    Element type = Element::f32;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;
};

/// Every launcher of this folder: work is queued on `stream`, nothing is allocated, zero rows or
/// columns are legal; returns the error of the launch. Results do not depend on timing.

}  // namespace loratrain::kernels
