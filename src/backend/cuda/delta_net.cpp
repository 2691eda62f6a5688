#include "backend/cuda/cuda_backend.h"
#include "base/error.h"
#include "base/text.h"

namespace loratrain {

namespace {

/// config/model_limits.cpp refuses models that need these on GPUs.
[[noreturn]] void has_no_kernel(const char* op) {
    throw Error(cat(op, " has no kernel on GPUs yet"));
}

}  // namespace

void CudaBackend::causal_conv(const CausalConv& /*op*/) {
    has_no_kernel("causal_conv");
}

void CudaBackend::causal_conv_backward(const CausalConvBackward& /*op*/) {
    has_no_kernel("causal_conv_backward");
}

void CudaBackend::delta_gates(const DeltaGates& /*op*/) {
    has_no_kernel("delta_gates");
}

void CudaBackend::delta_gates_backward(const DeltaGatesBackward& /*op*/) {
    has_no_kernel("delta_gates_backward");
}

void CudaBackend::delta_rule(const DeltaRule& /*op*/) {
    has_no_kernel("delta_rule");
}

void CudaBackend::delta_rule_backward(const DeltaRuleBackward& /*op*/) {
    has_no_kernel("delta_rule_backward");
}

void CudaBackend::gated_norm(const GatedNorm& /*op*/) {
    has_no_kernel("gated_norm");
}

void CudaBackend::gated_norm_backward(const GatedNormBackward& /*op*/) {
    has_no_kernel("gated_norm_backward");
}

}  // namespace loratrain
