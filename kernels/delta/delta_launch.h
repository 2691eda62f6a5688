#pragma once

#include "delta.h"

/// The kernels of the delta rule, in the order in which they run (kernels/delta/README.md).

namespace loratrain::kernels::delta {

/// With tensor cores. prepare(): factors of lengths, sums of g, W, U, P; for gradients T too. Then
/// outputs, and for gradients the states before chunks, with U - W S in the place of U.
cudaError_t prepare(cudaStream_t stream, const DeltaRuleParams& p);
cudaError_t make_outputs(cudaStream_t stream, const DeltaRuleParams& p);
cudaError_t prepare(cudaStream_t stream, const DeltaRuleBackwardParams& p);
cudaError_t make_states(cudaStream_t stream, const DeltaRuleBackwardParams& p);
/// Gradients of U - W S and of states; then all others.
cudaError_t make_state_gradients(cudaStream_t stream, const DeltaRuleBackwardParams& p);
cudaError_t make_gradients(cudaStream_t stream, const DeltaRuleBackwardParams& p);

/// In plain fp32.
cudaError_t delta_rule_plain(cudaStream_t stream, const DeltaRuleParams& p);
cudaError_t delta_rule_backward_plain(cudaStream_t stream, const DeltaRuleBackwardParams& p);

}  // namespace loratrain::kernels::delta
