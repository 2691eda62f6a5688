#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Uniform random numbers in center ± half_width; bit for bit base/random_matrix.h from row 0 on.
cudaError_t fill_random(cudaStream_t stream, const Matrix& target, std::uint64_t key, float center,
                        float half_width);

}  // namespace loratrain::kernels
