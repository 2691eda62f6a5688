#pragma once

#include <cstdint>

#include "backend/ops/lora.h"
#include "base/rng.h"
#include "base/tensor.h"

namespace loratrain {

/// y = (or += with accumulate) drop(x) with the masks of LoraShrink, for rows of one segment. Views
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

/// x[t, c] += amplitude u: u of the 15 random bits of base/rng.h dropout_bits, at the row's sample
/// and position, even in steps of 2^-14 in (-1, 1). x: rows of one sample, all of its columns.
/// NEFTune (Jain et al. 2023, Algorithm 1): amplitude = alpha / sqrt(rows of the sample * columns).
struct AddNoise {
    TensorView x;
    const std::int32_t* positions = nullptr;   ///< [n], as PackedRows
    const std::int32_t* sample_ids = nullptr;  ///< [n]
    std::uint64_t key = 0;
    std::uint32_t step = 0;
    float amplitude = 0.0F;
};

/// The matrix of base/rng.h: equal bits on every backend.
struct FillRandom {
    TensorView target;  ///< fp32 or bf16
    RandomMatrix random;
};

/// values[i, j] = (2 u - 1) bound, u = uniform_float(key, first + i stride + j) of base/rng.h:
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

/// The views must agree in shape.
void check_shapes(const DropRows& op);

}  // namespace loratrain
