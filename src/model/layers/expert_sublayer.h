#pragma once

#include "model/layers/branch.h"
#include "model/layers/expert_lora.h"
#include "model/layers/shared_expert.h"

namespace loratrain {

/// An MLP of experts (ExpertSpec): rows go to the experts in their order, so that each has a block
/// of rows, one product for it and each linear, and come back weighted, added up in the order of
/// experts. T k rows take part in all; an expert without rows none. The router and the experts'
/// weights are frozen, and LoRA may be on gate, up and down of each expert (ExpertLoraLinear);
/// backward goes to h through the experts and through the router, as autograd does. Lanes choose
/// experts with the same router; a lane has columns of each, or some whole, so that outputs, and
/// gradients of the router's weights, which are linear in them, add up over lanes.
class ExpertSublayer final : public Sublayer {
  public:
    explicit ExpertSublayer(const LayerTools& tools)
        : tools_(tools), lora_(tools.bank, tools.backend), shared_(tools) {}
    void forward(const LayerSite& at, const Branch& branch) override;
    void backward(const LayerSite& at, const Branch& branch, bool need_dx) override;

  private:
    Scratch lease(ScratchMatrix ExpertScratch::*which, std::int64_t rows) const;
    /// dS of the linears; without data if LoRA is on none of them.
    Scratch lease_ds(const LayerSite& at, ExpertLinears linears) const;
    /// In what is saved of the layer.
    ExpertRoutes routes_of(const LayerSite& at) const;
    ExpertLoraLinear::Site lora_site(const LayerSite& at) const {
        return {at.layer, at.rows, routes_of(at)};
    }
    /// The routes and gate_up that are saved of h [T, H]; what they make through the activation,
    /// where `product` has data.
    void make_gate_up(const LayerSite& at, const TensorView& h, const TensorView& product);
    /// Behind make_gate_up: S of down's LoRA, and the branch's sum if it has one.
    void combine(const LayerSite& at, const Branch& branch, const TensorView& product);
    /// From dy [T, H] to the gradients of gate_up and of the router's weights, and those of down's
    /// LoRA.
    void backward_down(const LayerSite& at, const TensorView& dy, const TensorView& d_gate_up,
                       float* d_weights);
    /// Weights of the experts that `logits` [T, E] choose.
    Route route_op(const LayerSite& at, const TensorView& logits) const;
    /// backward_down without the gradients of LoRA; ds: of down. product, if LoRA is on down: what
    /// gate and up made, through the activation.
    void backward_inner(const LayerSite& at, const TensorView& dy, const TensorView& product,
                        const TensorView& ds, const TensorView& d_gate_up, float* d_weights);
    /// rows = the gradient of gate and up's input at each place; the gradients of their LoRA, from
    /// h [T, H].
    void backward_gate_up(const LayerSite& at, const TensorView& h, const TensorView& d_gate_up,
                          const TensorView& rows);
    /// dh = gradient of h, of dy [T, H], on top of the shared expert's. h has data if LoRA is on
    /// gate or up.
    void backward_to_input(const LayerSite& at, const TensorView& h, const TensorView& dy,
                           const TensorView& dh);
    /// ExpertLoraLinear's; nothing if LoRA is on none of the linears.
    ExpertLoras forward_lora(const LayerSite& at, ExpertLinears linears, const ExpertRowsView& x,
                             const TensorView& s, const TensorView& y);
    ExpertLoras backward_lora(const LayerSite& at, ExpertLinears linears, const ExpertRowsView& dy,
                              const TensorView& ds, const TensorView& dx);
    /// [E N, K], in compute type; the shape alone where there are codes.
    Scratch weights_of(const ExpertMatrix& experts) const;
    /// Codes of W, and a place for those of the rows that it is multiplied with.
    struct LeasedCodes {
        Scratch rows;
        Scratch scales;
        ExpertCodes codes;
    };
    LeasedCodes codes_of(const ExpertMatrix& experts, std::int64_t copies) const;

    const LayerTools& tools_;
    ExpertLoraLinear lora_;
    SharedExpert shared_;
};

}  // namespace loratrain
