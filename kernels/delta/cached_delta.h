#pragma once

#include "delta.h"

namespace loratrain::kernels {

/// Kernels of gated delta nets for samples that go on from call to call (src/backend/ops/
/// delta_net.h: CachedConv, CachedDeltaRule). A sample goes on where the position of its first row
/// is not 0.

/// kept: [samples (width - 1), C] of the type of x.
cudaError_t cached_conv(cudaStream_t stream, const CausalConvParams& params, const Matrix& kept);

/// kept: [samples, Hv, Dk, Dv] fp32, aligned to 8 bytes. All sizes up to key heads of
/// delta_most_dim columns; params.states and params.workspace are not used. Sums are fp32 in a
/// fixed order: reproducible to the bit.
cudaError_t cached_delta_rule(cudaStream_t stream, const DeltaRuleParams& params, float* kept);

}  // namespace loratrain::kernels
