#pragma once

#include <cstdint>

namespace loratrain {

/// Operators of VeRA (Kopiczko et al. 2024): the product that stands for LoRA's B, and its
/// gradients.

/// product = diag(scale_b) b diag(scale_d), [N, rank] row-major: the B of LoRA's operators.
struct VeraProduct {
    const float* b = nullptr;
    const float* scale_d = nullptr;  ///< [rank]
    const float* scale_b = nullptr;  ///< [N]
    float* product = nullptr;
    std::int64_t out = 0;  ///< N
    std::int32_t rank = 0;
};

/// Gradients of the scales from the gradient G [N, rank] of the product; G is set to 0 afterwards:
///   grad_d[i] += sum over j of G[j, i] b[j, i] scale_b[j]
///   grad_b[j] += sum over i of G[j, i] b[j, i] scale_d[i]
struct VeraGradients {
    VeraProduct of;             ///< product is not used
    float* gradient = nullptr;  ///< G
    float* grad_d = nullptr;
    float* grad_b = nullptr;
};

}  // namespace loratrain
