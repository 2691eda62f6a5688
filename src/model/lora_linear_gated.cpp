#include <utility>

#include "model/lora_linear.h"

/// What LoraLinear does around an MLP's activation, where the backend has one pass for it.
namespace loratrain {

bool LoraLinear::shrink_gated(const Site& down, const SwiGlu& product, const TensorView& s) {
    if (!has_lora(down)) return false;
    gather_targets(down, {s, {}, {}});
    const LoraGatedForward op{product, targets_[0], down.rows.lora_rows(),
                              pad_behind(down, product.h, s)};
    if (!backend_.takes_at_once(op)) return false;
    backend_.lora_gated_forward(op);
    return true;
}

bool LoraLinear::has_gated(const Gated& of) const {
    if (of.gate_up.weights.shape.count != 2) return false;
    for (const Site* site : {&of.down, &of.gate_up}) {
        if (!has_lora(*site) || has_dora(*site) || has_vera(*site)) return false;
    }
    return true;
}

LoraGatedBackward LoraLinear::gather_gated(const Gated& of) {
    gather_slots(of.down, 0);
    std::swap(slots_[0], slots_[2]);
    gather_targets(of.gate_up, of.s);
    TensorView d_gate_up = of.product.dgate;
    d_gate_up.cols += of.product.dup.cols;
    return {of.product,
            {slots_[2], ds_view(of.down, of.d_down, 0)},
            pass_of(of.gate_up, d_gate_up, 0),
            pass_of(of.gate_up, d_gate_up, 1)};
}

bool LoraLinear::spares_down(const Gated& of) {
    return !in_one_gemm(of.down) && has_gated(of) && backend_.takes_at_once(gather_gated(of));
}

bool LoraLinear::backward_gated(const Gated& of, bool adds_down) {
    if (!has_gated(of)) return false;
    LoraGatedBackward op = gather_gated(of);
    op.adds_down = adds_down;
    if (!backend_.takes_at_once(op)) return false;
    backend_.lora_gated_backward(op);
    return true;
}

}  // namespace loratrain
