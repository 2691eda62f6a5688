#pragma once

#include <vector>

#include "adapter/adapter_bank.h"
#include "model/activation_slot.h"
#include "model/layer_rows.h"

namespace loratrain {

/// LoRA of a microbatch's adapters on the linears in the experts of a layer: of each expert its own
/// A and B. Rows are in the order of experts (ExpertRoutes); S is made again in backward, so that
/// nothing is kept between.
class ExpertLoraLinear {
  public:
    ExpertLoraLinear(const AdapterBank& bank, Backend& backend) : bank_(bank), backend_(backend) {}

    /// Where the call happens.
    struct Site {
        std::int32_t layer;  ///< counted from the stage's first layer
        const LayerRows& rows;
        ExpertRoutes routes;
    };
    /// Some adapter of the rows is on the linear.
    bool is_on(const Site& site, Linear linear);

    /// s = scale x Aᵀ
    void shrink(const Site& site, Linear linear, const TensorView& x, const TensorView& s);
    /// y += s Bᵀ
    void expand(const Site& site, Linear linear, const TensorView& s, const TensorView& y);
    /// ds = scale dy B
    void shrink_back(const Site& site, Linear linear, const TensorView& dy, const TensorView& ds);
    /// dx += ds A
    void expand_back(const Site& site, Linear linear, const TensorView& ds, const TensorView& dx);
    /// dA += dsᵀ x, dB += dyᵀ s
    void add_grad_a(const Site& site, Linear linear, const TensorView& x, const TensorView& ds);
    void add_grad_b(const Site& site, Linear linear, const TensorView& dy, const TensorView& s);

  private:
    ExpertLora op_of(const Site& site, Linear linear, const TensorView& wide,
                     const TensorView& narrow, bool of_b);

    const AdapterBank& bank_;
    Backend& backend_;
    std::vector<LoraSlot> slots_;  ///< of the latest call
};

}  // namespace loratrain
