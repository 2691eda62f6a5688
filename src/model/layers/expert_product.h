#pragma once

#include "backend/backend.h"
#include "model/weight_view.h"

namespace loratrain {

/// What the operators multiply with; without data where the weights are widened at each use.
TensorView weights_of_experts(const WeightView& matrix);

/// The operator multiply_experts, of weights [experts N, K] wherever they lie; op.w is none. Those
/// that are widened take turns in `scratch`, as gemm_matrix() has it, of one expert.
void multiply_experts(const WeightView& matrix, ExpertProduct op, void* scratch, Backend& backend);

}  // namespace loratrain
