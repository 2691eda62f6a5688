#include "kernels/optimizer.h"

#include <algorithm>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "base/dynamic_map.h"

namespace loratrain {

static_assert(kernels::adamw_8bit_block == dynamic_block);

void CudaBackend::sum_squares(const SumSquares& op) {
    auto* parts = static_cast<double*>(reserve_workspace(kernels::sum_squares_bytes));
    CUDA_CHECK(kernels::sum_squares(stream_, op.values, op.count, op.result, parts));
}

kernels::AdamWParams CudaBackend::step_params(const AdamW& op) {
    kernels::AdamWParams params;
    params.parameters = op.parameters;
    params.gradients = op.gradients;
    params.first_moments = op.first_moments;
    params.second_moments = op.second_moments;
    params.count = op.count;
    params.learning_rate = op.learning_rate;
    params.beta1 = op.beta1;
    params.beta2 = op.beta2;
    params.epsilon = op.epsilon;
    params.weight_decay = op.weight_decay;
    params.max_grad_norm = op.max_grad_norm;
    params.grad_sumsq = op.grad_sumsq;
    params.applied_steps = op.applied_steps;
    params.skipped_steps = op.skipped_steps;
    params.counts = op.counts;
    params.zeroes = op.zeroes;
    params.workspace = reserve_workspace(kernels::adamw_workspace_bytes);
    return params;
}

void CudaBackend::adamw(const AdamW& op) {
    CUDA_CHECK(kernels::adamw(stream_, step_params(op)));
}

void CudaBackend::adamw_8bit(const AdamW8bit& op) {
    kernels::AdamW8bitParams params;
    params.step = step_params(op.step);
    params.first_codes = op.first_codes;
    params.second_codes = op.second_codes;
    params.first_scales = op.first_scales;
    params.second_scales = op.second_scales;
    std::copy(signed_dynamic_map().begin(), signed_dynamic_map().end(), params.maps.first);
    std::copy(unsigned_dynamic_map().begin(), unsigned_dynamic_map().end(), params.maps.second);
    CUDA_CHECK(kernels::adamw_8bit(stream_, params));
}

}  // namespace loratrain
