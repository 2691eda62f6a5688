#pragma once

#include "matrix.h"
#include "sizes.h"

namespace loratrain::kernels {

/// Operators of an optimizer step. Formulas: src/backend/ops/optimizer.h.

/// *result = sum of values² in fp64: first within parts, then over the parts in order. workspace:
/// sum_squares_parts doubles.
cudaError_t sum_squares(cudaStream_t stream, const float* values, std::int64_t count,
                        double* result, double* workspace);

/// AdamW as in torch, on flat fp32 arrays. All that decides about the step is in device memory.
/// With norm = sqrt(*grad_sumsq):
///   norm not finite: *skipped_steps += 1, and nothing else changes. Otherwise:
///   t = ++*applied_steps;  g = grad * min(1, max_grad_norm / (norm + 1e-6)); max_grad_norm = 0: g
///   = grad p -= lr * weight_decay * p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g² p -= lr *
///   (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
/// With `zeroes`, grad is set to 0 in both cases. Of the calls of one step only the first `counts`.
struct AdamWParams {
    float* parameters = nullptr;
    float* gradients = nullptr;
    float* first_moments = nullptr;
    float* second_moments = nullptr;
    std::int64_t count = 0;
    double learning_rate = 0.0;
    double beta1 = 0.0;
    double beta2 = 0.0;
    double epsilon = 0.0;
    double weight_decay = 0.0;
    double max_grad_norm = 0.0;
    const double* grad_sumsq = nullptr;
    std::int64_t* applied_steps = nullptr;
    std::int64_t* skipped_steps = nullptr;
    bool counts = true;
    bool zeroes = true;
    void* workspace = nullptr;  ///< adamw_workspace_bytes
};
cudaError_t adamw(cudaStream_t stream, const AdamWParams& params);

/// The numbers that codes of first and of second moments stand for (src/base/dynamic_map.h).
struct DynamicMaps {
    float first[256];
    float second[256];
};
constexpr int adamw_8bit_block = 256;

/// adamw() with moments as codes, a scale for each block of adamw_8bit_block parameters. The
/// moments of `step` are null.
struct AdamW8bitParams {
    AdamWParams step;
    std::uint8_t* first_codes = nullptr;
    std::uint8_t* second_codes = nullptr;
    float* first_scales = nullptr;
    float* second_scales = nullptr;
    DynamicMaps maps;
};
cudaError_t adamw_8bit(cudaStream_t stream, const AdamW8bitParams& params);

}  // namespace loratrain::kernels
