#pragma once

#include <cstdint>

#include "base/quantized.h"
#include "base/tensor.h"

namespace loratrain {

/// Matrix products, and products of quantised codes.

/// C = alpha op(A) op(B) + beta D, row-major; op(X) = Xᵀ with transpose_x, else X.
/// op(A): [m, k], op(B): [k, n]; C, D: [m, n]; all compute_dtype(). beta = 0 overwrites NaN too.
/// With beta = 0 and no D, C may be fp32: the sums as they are.
struct Gemm {
    TensorView a;
    TensorView b;
    TensorView c;
    bool transpose_a = false;
    bool transpose_b = false;
    float alpha = 1.0F;
    float beta = 0.0F;
    TensorView d = {};  ///< without data: C; else the same as C, or without overlap
    const TensorView& added() const { return d.data == nullptr ? c : d; }
};

/// A view of rows of e4m3 codes (base/e4m3.h), [rows, cols], with a scale per row: element = code *
/// scales[row].
struct Fp8Rows {
    std::uint8_t* codes = nullptr;
    float* scales = nullptr;  ///< [rows]
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;

    /// Rows [first, first + count).
    Fp8Rows row_range(std::int64_t first, std::int64_t count) const {
        return {codes + first * ld, scales + first, count, cols, ld};
    }
};

/// Row t of `to` = codes and scale (row_coding()) of column_scales ∘ x_t. Each row is quantised by
/// itself, so that no row depends on its neighbours; a row that is not finite gets scale NaN. Equal
/// bits on every backend. x: [T, K], compute_dtype() or fp32.
struct QuantizeRows {
    TensorView x;
    const float* column_scales = nullptr;  ///< [K], null = 1
    Fp8Rows to;
};

/// Codes that an operator makes of its result, equal to the bit to those of quantize_rows. Without
/// to.codes none are made.
struct RowCodes {
    Fp8Rows to;
    const float* column_scales = nullptr;
    bool are_wanted() const { return to.codes != nullptr; }
};

/// to[j, i] = from[i, j], for codes; scales are not touched.
struct TransposeCodes {
    Fp8Rows to;
    Fp8Rows from;
};

/// target = the effective weights (base/quantized.h), rounded to target's type; equal bits on every
/// backend.
struct Dequantize {
    TensorView target;
    QuantizedMatrix weights;
};

/// C_ij = a.scales_i b.scales_j sum_k a_ik b_jk + beta D_ij, with sums in fp32.
/// A: [m, k], B: [n, k]; C, D: [m, n] compute_dtype(). beta = 0 overwrites NaN too. On CUDA: bf16,
/// compute capability >= 9.0; n, k, row strides and addresses are multiples of 16. `fast`: sums may
/// stay in the less exact accumulators of tensor cores.
struct GemmFp8 {
    Fp8Rows a;
    Fp8Rows b;
    TensorView c;
    float beta = 0.0F;
    bool fast = false;
    TensorView d = {};  ///< as in Gemm
    const TensorView& added() const { return d.data == nullptr ? c : d; }
};

/// Throws Error unless the shapes of an operator fit together.
void check_shapes(const QuantizeRows& op);
void check_shapes(const TransposeCodes& op);
void check_shapes(const Dequantize& op);

}  // namespace loratrain
