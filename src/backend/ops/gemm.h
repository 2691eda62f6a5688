#pragma once

#include <cstdint>

#include "base/quantized.h"
#include "base/tensor.h"

namespace loratrain {

/// C = alpha op(A) op(B) + beta D, row-major; op(X) = Xᵀ where transpose_x.
/// A: [m, k], B: [k, n] after op; C, D: [m, n]. dtypes: all compute_dtype(). beta = 0 overwrites,
/// also NaN.
struct Gemm {
    TensorView a;
    TensorView b;
    TensorView c;
    bool transpose_a = false;
    bool transpose_b = false;
    float alpha = 1.0F;
    float beta = 0.0F;
    TensorView d = {};  ///< c where it has no data; else c or apart from it
    const TensorView& added() const { return d.data == nullptr ? c : d; }
};

/// Rows of e4m3 codes (base/e4m3.h) [rows, cols] with a scale each: element = code * scale[row].
/// Not owned.
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

/// Row t of `to` gets the codes and the scale (row_coding) of column_scales x_t: each row for
/// itself, so that no row depends on its neighbours. A row that is not finite gets scale NaN. The
/// same bits on every backend. x: [T, K], compute_dtype() or fp32.
struct QuantizeRows {
    TensorView x;
    const float* column_scales = nullptr;  ///< [K], null = 1
    Fp8Rows to;
};

/// Codes that an op makes of what it writes, to the bit as quantize_rows does of it; none where
/// to.codes is null.
struct RowCodes {
    Fp8Rows to;
    const float* column_scales = nullptr;
    bool are_wanted() const { return to.codes != nullptr; }
};

/// to[j, i] = from[i, j]: codes alone.
struct TransposeCodes {
    Fp8Rows to;
    Fp8Rows from;
};

/// target = the effective weights of base/quantized.h, rounded to its type: equal bits on every
/// backend.
struct Dequantize {
    TensorView target;
    QuantizedMatrix weights;
};

/// C = A Bᵀ + beta C with sums in fp32, scaled after summing:
///   C_ij = a.scales_i b.scales_j sum_k a_ik b_jk + beta D_ij.
/// A: [m, k], B: [n, k]; C, D: [m, n] compute_dtype(). beta = 0 overwrites, also NaN. On CUDA:
/// bf16, compute capability 9.0 or more; n, k and row strides are multiples of 16, all addresses
/// too. `fast`: sums may be kept in the tensor cores' own, less exact accumulators.
struct GemmFp8 {
    Fp8Rows a;
    Fp8Rows b;
    TensorView c;
    float beta = 0.0F;
    bool fast = false;
    TensorView d = {};  ///< as Gemm's
    const TensorView& added() const { return d.data == nullptr ? c : d; }
};

/// The shapes of these ops must fit together.
void check_shapes(const QuantizeRows& op);
void check_shapes(const TransposeCodes& op);
void check_shapes(const Dequantize& op);

}  // namespace loratrain
