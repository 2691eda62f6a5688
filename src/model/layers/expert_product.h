#pragma once

#include "backend/backend.h"
#include "model/weight_view.h"

namespace loratrain {

/// A linear of all experts of a layer: for each expert e, with x_e and y_e the rows that went to it
/// (ExpertRoutes, whose host_offsets are known), and W_e [N, K] its rows of `matrix`,
///   forward:   y_e = x_e W_eᵀ      x: [T k, K], y: [T k, N]
///   backward:  y_e = x_e W_e       x: [T k, N], y: [T k, K]
/// x and y are in the order of experts and do not overlap. Nothing is computed for an expert
/// without rows. Equal bits for an expert's rows whatever other experts have.
struct ExpertProduct {
    enum class Way : std::uint8_t { forward, backward };
    const WeightView& matrix;  ///< [experts N, K], expert by expert
    const ExpertRoutes& routes;
    TensorView x;
    TensorView y;
    Way way;
};
/// `scratch`: as gemm_matrix() has it, of one W_e.
void multiply_experts(const ExpertProduct& op, void* scratch, Backend& backend);

}  // namespace loratrain
