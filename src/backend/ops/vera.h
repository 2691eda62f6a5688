#pragma once

#include <cstdint>

namespace loratrain {

/// product = diag(scale_b) b diag(scale_d), all [N, rank] row-major: the B of LoRA's ops for VeRA.
struct VeraProduct {
    const float* b = nullptr;
    const float* scale_d = nullptr;  ///< [rank]
    const float* scale_b = nullptr;  ///< [N]
    float* product = nullptr;
    std::int64_t out = 0;  ///< N
    std::int32_t rank = 0;
};

/// What the gradient G [N, rank] of that product says of the scales; it is 0 afterwards:
///   grad_d[i] += sum over j of G[j, i] b[j, i] scale_b[j],
///   grad_b[j] += sum over i of G[j, i] b[j, i] scale_d[i].
struct VeraGradients {
    VeraProduct of;  ///< without product
    float* gradient = nullptr;
    float* grad_d = nullptr;
    float* grad_b = nullptr;
};

}  // namespace loratrain
