#pragma once

#include <array>
#include <span>
#include <vector>

#include "adapter/adapter_bank.h"
#include "model/activation_slot.h"
#include "model/layer_rows.h"

namespace loratrain {

/// LoRA on the linears inside experts.

/// Linears of experts that read the same rows; their outputs lie side by side in equal parts.
using ExpertLinears = std::span<const Linear>;
inline constexpr std::array experts_gate_up{Linear::gate, Linear::up};
inline constexpr std::array experts_down{Linear::down};

/// Rows in the order of experts [T k, N]; or with `gathered` of the tokens [T, N], each of which
/// counts at all its places.
struct ExpertRowsView {
    TensorView data;
    bool gathered = false;
};

/// LoRA of a microbatch's adapters on the linears in the experts of a layer: of each expert its own
/// A and B. S and dS [T k, R n] have for each adapter the columns of the n linears side by side,
/// and those of the adapters of the rows one behind another from column 0 on.
class ExpertLoraLinear {
  public:
    ExpertLoraLinear(const AdapterBank& bank, Backend& backend) : bank_(bank), backend_(backend) {}

    /// Where the call happens.
    struct Site {
        std::int32_t layer;  ///< counted from the stage's first layer
        const LayerRows& rows;
        ExpertRoutes routes;
    };
    /// Some adapter of the rows is on one of the linears.
    bool is_on(const Site& site, ExpertLinears linears) const;

    /// The columns of s, or of ds, that the rows' adapters have.
    TensorView used_columns(const Site& site, ExpertLinears linears, const TensorView& s) const;

    /// s = scale x Aᵀ. Returns what the product that makes y adds: s Bᵀ; valid until the next call.
    ExpertLoras forward(const Site& site, ExpertLinears linears, const ExpertRowsView& x,
                        const TensorView& s, const TensorView& y);
    /// ds = scale dy B. Returns what the product that makes dx adds: ds A; valid until the next
    /// call.
    ExpertLoras backward(const Site& site, ExpertLinears linears, const ExpertRowsView& dy,
                         const TensorView& ds, const TensorView& dx);
    /// dA += dsᵀ x, dB += dyᵀ s
    void add_gradients(const Site& site, ExpertLinears linears, const ExpertRowsView& x,
                       const TensorView& ds, const ExpertRowsView& dy, const TensorView& s);

  private:
    /// Sets ops_, an element for each linear: of A with the wide rows x, of B with the outputs.
    void make_ops(const Site& site, ExpertLinears linears, const ExpertRowsView& wide,
                  const TensorView& narrow, bool of_b);

    const AdapterBank& bank_;
    Backend& backend_;
    std::array<std::vector<LoraSlot>, experts_gate_up.size()> slots_;  ///< of the latest call
    std::vector<ExpertLora> ops_;
};

}  // namespace loratrain
