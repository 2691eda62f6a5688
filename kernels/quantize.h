#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Row-major e4m3 codes [rows, cols], row stride `ld`, with a scale per row.
struct Fp8Codes {
    std::uint8_t* codes = nullptr;
    float* scales = nullptr;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;
};

/// Codes and scales of the rows of x, whose columns are first multiplied by column_scales [cols]
/// (null: by 1). The formula and its rounding: base/e4m3.h, coding_of.
cudaError_t quantize_rows(cudaStream_t stream, const Matrix& x, const float* column_scales,
                          const Fp8Codes& to);

/// to[j, i] = from[i, j], codes alone.
cudaError_t transpose_codes(cudaStream_t stream, const Fp8Codes& from, const Fp8Codes& to);

}  // namespace loratrain::kernels
