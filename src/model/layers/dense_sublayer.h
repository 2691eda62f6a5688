#pragma once

#include "model/layers/branch.h"

namespace loratrain {

/// Dense MLP, which all tokens pass:
///   made = down_proj(act(gate_proj h) * up_proj h)
/// Without a gate (DenseSpec::has_gate): made = down_proj(act(up_proj h)). Backward recomputes the
/// elementwise product (design.md "Saved activations"). A lane has its columns of gate and up.
class DenseSublayer final : public Sublayer {
  public:
    explicit DenseSublayer(const LayerTools& tools) : tools_(tools) {}
    void forward(const LayerSite& at, const Branch& branch) override;
    void backward(const LayerSite& at, const Branch& branch, bool need_dx) override;

  private:
    /// Scratch for the input of down (Workspace::input), with R columns behind it.
    Scratch product_of(const LayerSite& at) const;
    /// Scratch for the gradient of the outputs of gate and up, with the columns of their dS behind
    /// it.
    Scratch gradient_of_made(const GroupSite& gate_up) const;
    /// activate() applies the activation to the outputs of the linears before down.
    /// activate_backward() is its backward, and recomputes `product`.
    void activate(const LayerSite& at, const Operand& product) const;
    void activate_backward(const LayerSite& at, const TensorView& d_product,
                           const TensorView& d_made, const TensorView& product,
                           const RowCodes& codes) const;
    /// Operators of an MLP with a gate.
    static SwiGlu swiglu_op(const LayerSite& at, const Operand& product);
    static SwiGluBackward swiglu_backward_op(const LayerSite& at, const TensorView& d_product,
                                             const TensorView& d_made, const TensorView& product,
                                             const RowCodes& codes);
    /// Backward of down: from the branch's gradient to the gradient of the outputs of gate and up,
    /// in `d_gate_up`, which it leases. Adds to the gradients of down's LoRA and of gate's and up's
    /// B.
    Operand down_backward(const LayerSite& at, const Branch& branch, Scratch& d_gate_up) const;

    const LayerTools& tools_;
};

}  // namespace loratrain
