#pragma once

#include "model/activation_slot.h"
#include "model/expert_lora.h"
#include "model/frozen_weights.h"

namespace loratrain {

/// The MLP of a layer with experts (ExpertSpec): rows go to the experts in their order, so that
/// each has a block of rows, one product for it and each linear, and come back weighted, added up
/// in the order of experts. T k rows take part in all; an expert without rows none. The router and
/// the experts' weights are frozen, and LoRA may be on gate, up and down of each expert
/// (ExpertLoraLinear); backward goes to h through the experts and through the router, as autograd
/// does.
class ExpertMlp {
  public:
    ExpertMlp(const ReplicaView& view, const AdapterBank& bank, const Workspace& workspace,
              Backend& backend);

    /// Where the call happens.
    struct Site {
        const ExpertWeights& weights;
        std::int32_t layer;  ///< counted from the stage's first layer
        const LayerRows& rows;
    };
    /// saved.routes and saved.gate_up of h [T, H].
    void make_gate_up(const Site& site, const TensorView& h, const LayerActivations& saved);
    /// y = saved.x2 + MLP(h), behind make_gate_up.
    void forward(const Site& site, const LayerActivations& saved, const TensorView& y);
    /// Whether backward needs h.
    bool needs_input(const Site& site, const LayerActivations& saved);
    /// dh = gradient of h, of dy [T, H].
    void backward(const Site& site, const LayerActivations& saved, const TensorView& h,
                  const TensorView& dy, const TensorView& dh);

  private:
    static ExpertLoraLinear::Site lora_site(const Site& site, const LayerActivations& saved) {
        return {site.layer, site.rows, saved.routes};
    }
    /// y += LoRA of x on the linear; `number`: its columns of S.
    void add_lora(const Site& site, const LayerActivations& saved, Linear linear, int number,
                  const TensorView& x, const TensorView& y);
    /// From dy, of rows without their weights, to inner, as that of the product with them; the
    /// gradients of down's LoRA.
    void backward_down(const Site& site, const LayerActivations& saved, const TensorView& dy,
                       const TensorView& inner, float* d_weights);
    /// rows += what LoRA of gate and up has of the gradient of their input; their gradients.
    void backward_gate_up(const Site& site, const LayerActivations& saved, const TensorView& h,
                          const TensorView& d_gate_up, const TensorView& rows);
    /// Which way rows go through a linear.
    enum class Way : std::uint8_t { forward, backward };
    /// y = x W_eᵀ, or x W_e backward, of the rows of each expert; W_e: `rows` rows of `matrix`.
    void multiply(const WeightView& matrix, std::int64_t rows, const ExpertRoutes& routes,
                  const TensorView& x, const TensorView& y, Way way);
    /// What gate and up made, through the activation.
    TensorView product_of(const LayerActivations& saved);

    ReplicaView view_;
    const Workspace& workspace_;
    Backend& backend_;
    ExpertLoraLinear lora_;
};

}  // namespace loratrain
