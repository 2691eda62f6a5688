#include "backend/backend.h"

namespace loratrain {

void run_in_parts(Backend& backend, const LoraGatedForward& op) {
    backend.swiglu(op.product);
    backend.lora_shrink({op.product.h, {&op.down, 1}, op.rows, op.again});
}

void run_in_parts(Backend& backend, const LoraGatedBackward& op) {
    if (op.adds_down) {
        backend.lora_expand_backward({op.product.dh, {&op.down, 1}, op.gate.rows, true});
    }
    backend.swiglu_backward(op.product);
    backend.lora_grad_a({op.product.h, {&op.down, 1}, op.gate.rows});
    const LoraBackward both[] = {op.gate, op.up};
    backend.lora_backward_group(both);
}

}  // namespace loratrain
