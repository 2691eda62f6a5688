#pragma once

#include "model/layers/branch.h"

namespace loratrain {

/// Gated delta net (DeltaNetSpec; operators and formulas: backend/ops/delta_net.h):
///   made = out_proj(norm(delta rule(q, k, v, g(a), beta(b))) silu(z))
///   q, k, v = causal convolution of their linears' outputs
/// Backward makes what the convolution, the gates and the norm have made again.
class DeltaNetSublayer final : public Sublayer {
  public:
    explicit DeltaNetSublayer(const LayerTools& tools) : tools_(tools) {}
    void forward(const LayerSite& at, const Branch& branch) override;
    void backward(const LayerSite& at, const Branch& branch, bool need_dx) override;

  private:
    /// Columns of DeltaNetActivations::made, or of its gradient.
    struct Parts {
        TensorView mixed;  ///< q, k and v
        TensorView z;
        TensorView b;
        TensorView a;
    };
    static Parts split(const LayerSite& at, const TensorView& made);
    Scratch lease(ScratchMatrix DeltaNetScratch::*of, std::int64_t rows,
                  std::int64_t columns) const;
    /// Fills `made` with the outputs of the linears.
    void project(const LayerSite& at, const Branch& branch) const;
    /// Between outputs of linears of one key head after another and their parts: columns of
    /// `outputs` to those of `parts`, or with `back` the other way round.
    void reorder(const LayerSite& at, const TensorView& outputs, const TensorView& parts,
                 bool back) const;
    CausalConv conv_op(const LayerSite& at, const TensorView& mixed) const;
    /// Fills saved.o from `made`.
    void mix(const LayerSite& at) const;
    /// g and beta in the first half of `gates` [4 T, Hv].
    DeltaGates gates_op(const LayerSite& at, const TensorView& gates) const;
    DeltaRule rule_op(const LayerSite& at, const TensorView& mixed, const TensorView& gates,
                      const TensorView& states) const;
    GatedNorm norm_op(const LayerSite& at, const TensorView& product) const;
    /// Scratch for the input of out_proj, with R columns behind it.
    Scratch product_of(const LayerSite& at) const;
    /// Scratch for the gradient of the linears' outputs, with the columns of their dS behind it.
    Scratch gradient_of_outputs(const LayerSite& at) const;
    /// From the branch's gradient to that of o, in the place of saved.o, and of z, in the gradient
    /// of `made` that it leases; and the gradients of out_proj's LoRA. That of `made` is the
    /// gradient of the linears' outputs where these are by kind.
    Scratch out_backward(const LayerSite& at, const Branch& branch) const;
    /// From the gradient of o to all others of `made`.
    void rule_backward(const LayerSite& at, const TensorView& d_made) const;

    const LayerTools& tools_;
};

}  // namespace loratrain
