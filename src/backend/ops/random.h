#pragma once

#include <cstdint>

#include "backend/ops/lora.h"
#include "base/rng.h"
#include "base/tensor.h"

namespace loratrain {

/// Operators that draw random numbers: dropout, noise, random matrices.

/// y = drop(x), or += with accumulate, with the masks of LoraShrink, for rows of one segment. Views
/// of one shape [n, K]; without accumulate they may be the same.
struct DropRows {
    TensorView y;
    TensorView x;
    LoraSlot slot;
    const std::int32_t* positions = nullptr;   ///< [n], as PackedRows
    const std::int32_t* sample_ids = nullptr;  ///< [n]
    std::uint32_t step = 0;
    bool accumulate = false;
};

/// x[t, c] += amplitude u, with u = noise_unit() of the 15 bits of dropout_bits() (base/rng.h) at
/// the row's sample and position: uniform in (-1, 1) in steps of 2^-14. x: rows of one sample, all
/// columns. For NEFTune (Jain et al. 2023, Algorithm 1):
///   amplitude = alpha / sqrt(rows x columns),
/// where rows are those of the sample.
struct AddNoise {
    TensorView x;
    const std::int32_t* positions = nullptr;   ///< [n], as PackedRows
    const std::int32_t* sample_ids = nullptr;  ///< [n]
    std::uint64_t key = 0;
    std::uint32_t step = 0;
    float amplitude = 0.0F;
};

/// target = the RandomMatrix of base/rng.h from row 0; equal bits on every backend.
struct FillRandom {
    TensorView target;  ///< fp32 or bf16
    RandomMatrix random;
};

/// values[i, j] = (2 u - 1) bound, u = uniform_float(key, first + i stride + j) of base/rng.h;
/// equal bits on every backend.
struct DrawUniform {
    float* values = nullptr;  ///< [rows, cols], one after another
    std::int64_t rows = 1;
    std::int64_t cols = 0;
    std::int64_t first = 0;
    std::int64_t stride = 0;
    std::uint64_t key = 0;
    float bound = 1.0F;
};

/// Throws Error unless the views agree in shape.
void check_shapes(const DropRows& op);

}  // namespace loratrain
