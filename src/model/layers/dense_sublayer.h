#pragma once

#include "model/layers/branch.h"

namespace loratrain {

/// An MLP that all tokens go through:
///   made = down_proj(act(gate_proj h) * up_proj h)
/// or without a gate (DenseSpec::has_gate) down_proj(act(up_proj h)). Backward makes the product
/// elementwise again (design.md "Saved activations"). A lane has its columns of gate and up.
class DenseSublayer final : public Sublayer {
  public:
    explicit DenseSublayer(const LayerTools& tools) : tools_(tools) {}
    void forward(const LayerSite& at, const Branch& branch) override;
    void backward(const LayerSite& at, const Branch& branch, bool need_dx) override;

  private:
    /// For down's input (Workspace::input), with R columns behind it.
    Scratch product_of(const LayerSite& at) const;
    /// For the gradient of what gate and up made, with the columns of their dS behind it.
    Scratch gradient_of_made(const GroupSite& gate_up) const;
    /// What the linears before down made, through the activation; and back, with `product` made
    /// again.
    void activate(const LayerSite& at, const Operand& product) const;
    void activate_backward(const LayerSite& at, const TensorView& d_product,
                           const TensorView& d_made, const TensorView& product,
                           const RowCodes& codes) const;
    /// Of an MLP with a gate.
    static SwiGlu swiglu_op(const LayerSite& at, const Operand& product);
    static SwiGluBackward swiglu_backward_op(const LayerSite& at, const TensorView& d_product,
                                             const TensorView& d_made, const TensorView& product,
                                             const RowCodes& codes);
    /// From the branch's gradient to that of what gate and up made, which it leases, and the
    /// gradients of down's LoRA and of their B.
    Operand down_backward(const LayerSite& at, const Branch& branch, Scratch& d_gate_up) const;

    const LayerTools& tools_;
};

}  // namespace loratrain
