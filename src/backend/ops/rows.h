#pragma once

#include <cstdint>

#include "base/tensor.h"

namespace loratrain {

/// target = source, between views of one shape and of any dtypes and strides, converting.
struct Copy {
    TensorView target;
    TensorView source;
};

/// y[t, :] += bias.
struct AddBias {
    TensorView y;
    const void* bias = nullptr;  ///< [cols], compute_dtype()
};

/// y += x, of one shape.
struct Add {
    TensorView y;
    TensorView x;
};

/// y[i, :] = scale table[ids[i], :], or zeros where ids[i] is negative. Of an embedding, and of
/// rows of activations.
struct GatherRows {
    TensorView y;
    TensorView table;  ///< bf16 or fp32
    const std::int32_t* ids = nullptr;
    float scale = 1.0F;
};

/// y[ids[i], :] = x[i, :], all other rows of y are set to 0. ids ascend; views of one dtype.
struct ScatterRows {
    TensorView y;
    TensorView x;
    const std::int32_t* ids = nullptr;
};

/// The views of these ops must fit together.
void check_shapes(const Copy& op);
void check_shapes(const Add& op);
void check_shapes(const GatherRows& op);
void check_shapes(const ScatterRows& op);

}  // namespace loratrain
