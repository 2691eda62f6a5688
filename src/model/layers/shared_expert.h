#pragma once

#include "model/layers/branch.h"

namespace loratrain {

/// The expert of an MLP of experts that all tokens pass (ExpertSpec::shared_size):
///   sum += g shared(h),  shared(h) = down(act(gate h) * up h),  g = 1 or sigmoid(w . h)
/// Its linears may have LoRA; w is frozen. ExpertSublayer runs it beside the others and owns the
/// norms around both. The gate is a router with one expert (Route, RouterScores::sigmoid).
class SharedExpert {
  public:
    explicit SharedExpert(const LayerTools& tools) : tools_(tools) {}

    /// Fills what is saved of gate and up, and the routes of g, from h [T, H], with the columns of
    /// Branch::make_input behind it.
    void make_gate_up(const LayerSite& at, const TensorView& h) const;
    /// Adds to the branch's sum; without a sum fills S of down alone.
    void add(const LayerSite& at, const Branch& branch) const;

    /// Some adapter of the rows is on gate or up: backward needs h.
    bool needs_input(const LayerSite& at) const;
    /// dh [T, H] = gradient of h, from the branch's gradient; gradients of the adapters. h: where
    /// needs_input().
    void backward(const LayerSite& at, const Branch& branch, const TensorView& h,
                  const TensorView& dh) const;

  private:
    Scratch lease(ScratchMatrix ExpertScratch::*which, std::int64_t rows,
                  std::int64_t columns) const;
    ExpertRoutes routes_of(const LayerSite& at) const;
    /// w [1, H].
    TensorView gate_of(const LayerSite& at) const;
    SwiGlu swiglu_op(const LayerSite& at, const TensorView& product) const;
    /// shared(h) of what is saved; S of down.
    void make_output(const LayerSite& at, const TensorView& output) const;
    /// From dy [T, H], g shared(h)'s gradient, to that of shared(h), in place; the gradient of h
    /// through g: what `d_logits` [T, 1] is multiplied with w.
    void gate_backward(const LayerSite& at, const TensorView& dy, const TensorView& d_logits) const;
    /// The rest, from the gradient of shared(h), with R columns behind it.
    void mlp_backward(const LayerSite& at, const TensorView& d_out, const TensorView& h,
                      const TensorView& dh) const;

    const LayerTools& tools_;
};

}  // namespace loratrain
