#pragma once

#include <cstdint>
#include <span>

namespace loratrain {

/// Operators of an optimizer step.

/// *result = sum of squares (fp64) of `count` floats.
struct SumSquares {
    const float* values = nullptr;
    std::int64_t count = 0;
    double* result = nullptr;
};

/// AdamW (Loshchilov and Hutter 2019) as in torch, on the flat parameters of one adapter on a
/// stage. With norm = sqrt(*grad_sumsq):
///   norm not finite: *skipped_steps += 1, and nothing else changes. Otherwise:
///   g = grad * min(1, max_grad_norm / (norm + 1e-6)); max_grad_norm = 0: g = grad
///   t = ++*applied_steps
///   p -= lr * weight_decay * p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g²
///   p -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
/// With `zeroes`, grad is set to 0 in both cases. Parameters with different learning rates take one
/// operator for each rate: the first one `counts` the step, the others use its number.
struct AdamW {
    float* parameters = nullptr;
    float* gradients = nullptr;
    float* first_moments = nullptr;
    float* second_moments = nullptr;
    std::int64_t count = 0;
    double learning_rate = 0.0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;
    double max_grad_norm = 0.0;
    const double* grad_sumsq = nullptr;  ///< over all stages
    std::int64_t* applied_steps = nullptr;
    std::int64_t* skipped_steps = nullptr;
    bool counts = true;
    bool zeroes = true;
};

/// AdamW with moments in 8-bit codes (base/dynamic_map.h), a scale for each block of 256
/// parameters. The step decodes the moments, computes with the new moments in fp32, and encodes
/// them as encode_block() does. The pointers to moments in `step` are not used. Codes and scales of
/// 0 stand for moments of 0. Source: Dettmers et al. 2022, "8-bit Optimizers via Block-wise
/// Quantization"; bitsandbytes, AdamW8bit.
struct AdamW8bit {
    AdamW step;
    std::uint8_t* first_codes = nullptr;   ///< [count], signed map
    std::uint8_t* second_codes = nullptr;  ///< [count], unsigned map
    float* first_scales = nullptr;         ///< [blocks]
    float* second_scales = nullptr;        ///< [blocks]
};

/// target[target_index[i]] = source[source_index[i]], or += with `add`. Index lists are [host].
struct MoveDoubles {
    double* target = nullptr;
    const double* source = nullptr;
    std::span<const std::int32_t> target_index;
    std::span<const std::int32_t> source_index;
    bool add = false;
};

}  // namespace loratrain
