#include "kernels/delta/cached_delta.h"
#include "kernels/delta/delta.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "base/error.h"
#include "base/operators.h"

namespace loratrain {

namespace {

static_assert(kernels::most_conv_width == most_conv_width);
static_assert(kernels::delta_chunk == delta_chunk);
static_assert(kernels::delta_length_eps == delta_length_eps);

kernels::DeltaSamples samples_of(const PackedRows& rows) {
    return {rows.tokens, rows.samples, rows.offsets, rows.positions};
}

kernels::CausalConvParams params_of(const CausalConv& op) {
    return {matrix_of(op.x), op.weight, static_cast<std::int32_t>(op.width), matrix_of(op.y),
            samples_of(op.rows)};
}

kernels::DeltaGatesParams params_of(const DeltaGates& op) {
    return {matrix_of(op.a),
            matrix_of(op.b),
            op.a_log,
            op.dt_bias,
            static_cast<float*>(op.g.data),
            static_cast<float*>(op.beta.data)};
}

kernels::GatedNormParams params_of(const GatedNorm& op) {
    return {matrix_of(op.o), matrix_of(op.z), op.weight, op.eps, op.heads, matrix_of(op.y)};
}

kernels::DeltaRuleParams params_of(const DeltaRule& op, int shared_limit) {
    LORATRAIN_CHECK(op.key_dim() <= kernels::delta_most_dim, "delta_rule on a GPU takes heads of ",
                    "at most ", kernels::delta_most_dim, " columns, got ", op.key_dim());
    kernels::DeltaRuleParams params;
    params.q = matrix_of(op.q);
    params.k = matrix_of(op.k);
    params.v = matrix_of(op.v);
    params.g = static_cast<const float*>(op.g.data);
    params.beta = static_cast<const float*>(op.beta.data);
    params.o = matrix_of(op.o);
    params.key_heads = static_cast<std::int32_t>(op.key_heads);
    params.value_heads = static_cast<std::int32_t>(op.value_heads);
    params.states = op.states;
    params.rows = samples_of(op.rows);
    params.shared_limit = shared_limit;
    return params;
}

}  // namespace

void CudaBackend::causal_conv(const CausalConv& op) {
    check_shapes(op);
    require_compute({&op.x, &op.y});
    CUDA_CHECK(kernels::causal_conv(stream_, params_of(op)));
}

void CudaBackend::cached_conv(const CachedConv& op) {
    check_shapes(op);
    require_compute({&op.of.x, &op.of.y, &op.kept});
    CUDA_CHECK(kernels::cached_conv(stream_, params_of(op.of), matrix_of(op.kept)));
}

void CudaBackend::causal_conv_backward(const CausalConvBackward& op) {
    check_shapes(op);
    require_compute({&op.forward.x, &op.dy, &op.dx});
    CUDA_CHECK(kernels::causal_conv_backward(stream_, params_of(op.forward), matrix_of(op.dy),
                                             matrix_of(op.dx)));
}

void CudaBackend::delta_gates(const DeltaGates& op) {
    check_shapes(op);
    require_compute({&op.a, &op.b});
    CUDA_CHECK(kernels::delta_gates(stream_, params_of(op)));
}

void CudaBackend::delta_gates_backward(const DeltaGatesBackward& op) {
    check_shapes(op);
    require_compute({&op.forward.a, &op.forward.b, &op.da, &op.db});
    CUDA_CHECK(kernels::delta_gates_backward(
        stream_, {params_of(op.forward), static_cast<const float*>(op.d_g.data),
                  static_cast<const float*>(op.d_beta.data), matrix_of(op.da), matrix_of(op.db)}));
}

void CudaBackend::delta_rule(const DeltaRule& op) {
    check_shapes(op);
    require_compute({&op.q, &op.k, &op.v, &op.o});
    kernels::DeltaRuleParams params = params_of(op, shared_limit_);
    params.workspace =
        reserve_workspace(static_cast<std::size_t>(kernels::delta_rule_workspace(params)));
    CUDA_CHECK(kernels::delta_rule(stream_, params));
}

void CudaBackend::cached_delta_rule(const CachedDeltaRule& op) {
    check_shapes(op.of);
    require_compute({&op.of.q, &op.of.k, &op.of.v, &op.of.o});
    CUDA_CHECK(kernels::cached_delta_rule(stream_, params_of(op.of, shared_limit_), op.kept));
}

void CudaBackend::delta_rule_backward(const DeltaRuleBackward& op) {
    check_shapes(op);
    const DeltaRule& of = op.forward;
    require_compute({&of.q, &of.k, &of.v, &op.d_o, &op.dq, &op.dk, &op.dv});
    kernels::DeltaRuleBackwardParams params;
    params.forward = params_of(of, shared_limit_);
    params.d_o = matrix_of(op.d_o);
    params.dq = matrix_of(op.dq);
    params.dk = matrix_of(op.dk);
    params.dv = matrix_of(op.dv);
    params.d_g = static_cast<float*>(op.d_g.data);
    params.d_beta = static_cast<float*>(op.d_beta.data);
    params.forward.workspace =
        reserve_workspace(static_cast<std::size_t>(kernels::delta_rule_workspace(params)));
    CUDA_CHECK(kernels::delta_rule_backward(stream_, params));
}

void CudaBackend::gated_norm(const GatedNorm& op) {
    check_shapes(op);
    require_compute({&op.o, &op.z, &op.y});
    CUDA_CHECK(kernels::gated_norm(stream_, params_of(op)));
}

void CudaBackend::gated_norm_backward(const GatedNormBackward& op) {
    check_shapes(op);
    require_compute({&op.forward.o, &op.forward.z, &op.dy, &op.d_o, &op.d_z});
    CUDA_CHECK(kernels::gated_norm_backward(
        stream_, {params_of(op.forward), matrix_of(op.dy), matrix_of(op.d_o), matrix_of(op.d_z)}));
}

}  // namespace loratrain
