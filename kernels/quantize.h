#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Quantised weights and activations: codes to numbers (nf4, int8, e4m3), numbers to e4m3 codes.

/// Row-major e4m3 codes [rows, cols], row stride `ld`, with a scale per row.
struct Fp8Codes {
    std::uint8_t* codes = nullptr;
    float* scales = nullptr;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;
};

/// Codes and scales of the rows of x, whose columns are first multiplied by column_scales [cols]
/// (null = 1). Formula and rounding: row_coding() in src/base/e4m3.h.
cudaError_t quantize_rows(cudaStream_t stream, const Matrix& x, const float* column_scales,
                          const Fp8Codes& to);

/// to[j, i] = from[i, j], for codes; scales are not touched.
cudaError_t transpose_codes(cudaStream_t stream, const Fp8Codes& from, const Fp8Codes& to);

enum class CodeFormat : std::uint8_t { nf4, int8, e4m3 };
enum class RoundedTo : std::uint8_t { f32, bf16, f16 };

/// Rows of codes, `code_bytes` bytes and `scale_count` scales each. Scale i belongs to columns
/// [i 2^block_shift, (i + 1) 2^block_shift).
struct Codes {
    const void* codes = nullptr;
    const float* scales = nullptr;
    CodeFormat format = CodeFormat::nf4;
    RoundedTo rounded_to = RoundedTo::bf16;
    std::int64_t code_bytes = 0;
    std::int64_t scale_count = 0;
    int block_shift = 0;
    float int8_step = 0.0F;  ///< int8: weight = code * scale * int8_step
};

/// target = the effective weights, equal bits (src/base/quantized.h). table: nf4_table.
cudaError_t dequantize(cudaStream_t stream, const Matrix& target, const Codes& source,
                       const float (&table)[16]);

}  // namespace loratrain::kernels
