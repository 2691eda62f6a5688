#include "delta_launch.h"
#include "kernels/launch.cuh"

namespace loratrain::kernels {

namespace {

bool is_aligned(std::initializer_list<const Matrix*> operands) {
    for (const Matrix* x : operands) {
        if (x->type != Element::bf16 || !rows_aligned(*x)) return false;
    }
    return true;
}

bool runs_on_tensor_cores(const DeltaRuleParams& p) {
    return delta_takes_tensor(p.sizes()) && p.shared_limit >= delta_shared_bytes &&
           is_aligned({&p.q, &p.k, &p.v, &p.o});
}

bool runs_on_tensor_cores(const DeltaRuleBackwardParams& p) {
    const DeltaRuleParams& of = p.forward;
    return delta_takes_tensor(of.sizes()) && of.shared_limit >= delta_backward_shared_bytes &&
           is_aligned({&of.q, &of.k, &of.v, &p.d_o, &p.dq, &p.dk, &p.dv});
}

/// Queues the steps of an operator one after the other.
template <class Params, class... Steps>
cudaError_t run_steps(cudaStream_t stream, const Params& p, Steps... steps) {
    cudaError_t error = cudaSuccess;
    ((error = error == cudaSuccess ? steps(stream, p) : error), ...);
    return error;
}

}  // namespace

std::int64_t delta_rule_workspace(const DeltaRuleParams& p) {
    return delta_rule_bytes(p.sizes(), p.rows.tokens, runs_on_tensor_cores(p));
}

std::int64_t delta_rule_workspace(const DeltaRuleBackwardParams& p) {
    return delta_rule_backward_bytes(p.forward.sizes(), p.forward.rows.tokens,
                                     runs_on_tensor_cores(p), p.forward.shared_limit);
}

cudaError_t delta_rule(cudaStream_t stream, const DeltaRuleParams& p) {
    if (p.rows.tokens == 0) return cudaSuccess;
    if (!runs_on_tensor_cores(p)) return delta::delta_rule_plain(stream, p);
    using Step = cudaError_t (*)(cudaStream_t, const DeltaRuleParams&);
    return run_steps(stream, p, static_cast<Step>(delta::prepare), delta::make_outputs);
}

cudaError_t delta_rule_backward(cudaStream_t stream, const DeltaRuleBackwardParams& p) {
    if (p.forward.rows.tokens == 0) return cudaSuccess;
    if (!runs_on_tensor_cores(p)) return delta::delta_rule_backward_plain(stream, p);
    using Step = cudaError_t (*)(cudaStream_t, const DeltaRuleBackwardParams&);
    return run_steps(stream, p, static_cast<Step>(delta::prepare), delta::make_states,
                     delta::make_state_gradients, delta::make_gradients);
}

}  // namespace loratrain::kernels
