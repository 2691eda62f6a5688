#pragma once

#include "quantize.h"

namespace loratrain::kernels {

/// xIELU, as Xielu of the program's backend/ops/elementwise.h has it. All [T, F] of one type;
/// `codes`: of h or dx, as quantize_rows makes them, none where null.
struct XieluParams {
    Matrix x;
    float positive = 0.0F;
    float negative = 0.0F;
    Matrix h;  ///< backward: made again when data is set; may alias dh
    Matrix dh = {};
    Matrix dx = {};  ///< may alias x
    Fp8Codes codes = {};
    const float* column_scales = nullptr;  ///< of dx
};
cudaError_t xielu(cudaStream_t stream, const XieluParams& params);
cudaError_t xielu_backward(cudaStream_t stream, const XieluParams& params);

}  // namespace loratrain::kernels
