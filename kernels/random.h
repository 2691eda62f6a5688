#pragma once

#include "matrix.h"

namespace loratrain::kernels {

/// Random numbers with the bits of src/base/rng.h.

/// target = the RandomMatrix of src/base/rng.h from row 0: uniform in center ± half_width.
cudaError_t fill_random(cudaStream_t stream, const Matrix& target, std::uint64_t key, float center,
                        float half_width);

/// values[i, j] = (2 u - 1) bound, u = uniform_float(key, first + i stride + j).
struct DrawUniformParams {
    float* values = nullptr;  ///< [rows, cols], one after another
    std::int64_t rows = 1;
    std::int64_t cols = 0;
    std::int64_t first = 0;   ///< element of the stream for values[0, 0]
    std::int64_t stride = 0;  ///< elements from row to row
    std::uint64_t key = 0;
    float bound = 1.0F;
};
cudaError_t draw_uniform(cudaStream_t stream, const DrawUniformParams& params);

/// x[t, c] += amplitude u, u = noise_unit() of dropout_bits() at column c of the row's sample and
/// position.
struct AddNoiseParams {
    Matrix x;
    const std::int32_t* positions = nullptr;   ///< [rows]
    const std::int32_t* sample_ids = nullptr;  ///< [rows]
    std::uint64_t key = 0;
    std::uint32_t step = 0;
    float amplitude = 0.0F;
};
cudaError_t add_noise(cudaStream_t stream, const AddNoiseParams& params);

}  // namespace loratrain::kernels
