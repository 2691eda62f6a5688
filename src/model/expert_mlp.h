#pragma once

#include "model/activation_slot.h"
#include "model/frozen_weights.h"

namespace loratrain {

/// The MLP of a layer with experts (ExpertSpec), frozen as a whole: rows go to the experts in their
/// order, so that each has a block of rows, one product for it and each linear, and come back
/// weighted, added up in the order of experts. T k rows take part in all; an expert without rows
/// none. Backward makes no gradient of weights, but goes to h through the experts and through the
/// router, as autograd does.
class ExpertMlp {
  public:
    ExpertMlp(const ReplicaView& view, const Workspace& workspace, Backend& backend);

    /// saved.routes and saved.gate_up of h [T, H].
    void make_gate_up(const ExpertWeights& weights, const TensorView& h,
                      const LayerActivations& saved);
    /// y = saved.x2 + MLP(h), behind make_gate_up.
    void forward(const ExpertWeights& weights, const LayerActivations& saved, const TensorView& y);
    /// dh = gradient of h, of dy [T, H].
    void backward(const ExpertWeights& weights, const LayerActivations& saved, const TensorView& dy,
                  const TensorView& dh);

  private:
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
};

}  // namespace loratrain
