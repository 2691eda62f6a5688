#pragma once

#include "backend/backend.h"
#include "model/weight_view.h"

namespace loratrain {

/// Weights of experts as the operators multiply with them; without data if the weights are widened
/// at each use.
TensorView weights_of_experts(const WeightView& matrix);

/// Runs the operator multiply_experts with weights [experts N, K] in any residence; op.w is not
/// set. Staged weights are widened one expert at a time into `scratch`, as in gemm_matrix().
void multiply_experts(const WeightView& matrix, ExpertProduct op, void* scratch, Backend& backend);

}  // namespace loratrain
