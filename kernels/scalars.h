#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// target[target_index[i]] = (or += with add) source[source_index[i]] for i < count, in order;
/// index lists in device memory.
cudaError_t move_doubles(cudaStream_t stream, double* target, const double* source,
                         const std::int32_t* target_index, const std::int32_t* source_index,
                         std::int64_t count, bool add);

}  // namespace loratrain::kernels
