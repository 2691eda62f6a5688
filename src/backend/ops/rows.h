#pragma once

#include <cstdint>

#include "base/tensor.h"

namespace loratrain {

/// Operators on rows: copies, sums, gathers and scatters; and how samples lie in rows.

/// Samples packed one after another into the T rows of a microbatch.
struct PackedRows {
    std::int64_t tokens = 0;
    std::int64_t samples = 0;
    const std::int32_t* offsets = nullptr;       ///< [samples + 1], first row of each sample
    const std::int32_t* host_offsets = nullptr;  ///< [samples + 1], the same numbers [host]
    const std::int32_t* positions = nullptr;     ///< [T], position of each row in its sample
    const std::int32_t* sample_ids = nullptr;    ///< [T], index of the sample in its dataset
};

/// target = source, converted; views of one shape, any dtypes and strides.
struct Copy {
    TensorView target;
    TensorView source;
};

/// target[t, h target_stride + j] = source[t, h source_stride + j] for h < heads, j < width: heads
/// out of, or into, columns where something else lies between them. With source_stride 0 all heads
/// of target get the same columns. Views of one dtype, apart.
struct CopyHeads {
    TensorView target;
    TensorView source;
    std::int64_t heads = 0;
    std::int64_t width = 0;
    std::int64_t target_stride = 0;
    std::int64_t source_stride = 0;
};

/// target[t, j] = sum over h < heads of source[t, h source_stride + j], in fp32: the transpose of
/// CopyHeads with source_stride 0. Views apart.
struct SumHeads {
    TensorView target;
    TensorView source;
    std::int64_t heads = 0;
    std::int64_t source_stride = 0;
};

/// y[t, :] += bias.
struct AddBias {
    TensorView y;
    const void* bias = nullptr;  ///< [cols], of y's type: compute_dtype() or fp32
};

/// y += x; views of one shape.
struct Add {
    TensorView y;
    TensorView x;
};

/// y[i, :] = scale table[ids[i], :], or zeros if ids[i] is negative. For embeddings, and for rows
/// of activations.
struct GatherRows {
    TensorView y;
    TensorView table;  ///< bf16 or fp32
    const std::int32_t* ids = nullptr;
    float scale = 1.0F;
};

/// y[ids[i], :] = x[i, :]; all other rows of y are set to 0. ids ascend; views of one dtype.
struct ScatterRows {
    TensorView y;
    TensorView x;
    const std::int32_t* ids = nullptr;
};

/// Throws Error unless the views of an operator fit together.
void check_shapes(const Copy& op);
void check_shapes(const CopyHeads& op);
void check_shapes(const SumHeads& op);
void check_shapes(const Add& op);
void check_shapes(const GatherRows& op);
void check_shapes(const ScatterRows& op);

}  // namespace loratrain
