#pragma once

#include "base/tensor.h"

namespace loratrain {

/// Largest error of an element against fp64 loops, relative to the root mean square of what is
/// not 0 in the whole expected tensor, plus the element itself. One place for every backend and
/// operator.
struct Tolerance {
    double relative;
};

inline Tolerance tolerance_of(DType compute_dtype) {
    return compute_dtype == DType::f32 ? Tolerance{2e-5} : Tolerance{2e-2};
}

/// Of results that are fp64 sums of values computed in `compute_dtype`.
inline Tolerance sum_tolerance_of(DType compute_dtype) {
    return compute_dtype == DType::f32 ? Tolerance{1e-6} : Tolerance{1e-2};
}

}  // namespace loratrain
