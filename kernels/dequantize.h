#pragma once

#include "matrix.h"

namespace loratrain::kernels {

enum class CodeFormat : std::uint8_t { nf4, int8, e4m3 };
enum class RoundedTo : std::uint8_t { f32, bf16, f16 };

/// Rows of codes, each `code_bytes` long, and `scale_count` scales a row; scale i is of columns
/// [i 2^block_shift, (i + 1) 2^block_shift).
struct Codes {
    const void* codes = nullptr;
    const float* scales = nullptr;
    CodeFormat format = CodeFormat::nf4;
    RoundedTo rounded_to = RoundedTo::bf16;
    std::int64_t code_bytes = 0;
    std::int64_t scale_count = 0;
    int block_shift = 0;
    float int8_step = 0.0F;  ///< of int8: weight = code * scale * step
};

/// target = the effective weights of base/quantized.h, the same bits; `table` [16] fp32: nf4's.
cudaError_t dequantize(cudaStream_t stream, const Matrix& target, const Codes& source,
                       const float (&table)[16]);

}  // namespace loratrain::kernels
