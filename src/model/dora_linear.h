#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "adapter/adapter_bank.h"
#include "backend/rank_group.h"
#include "model/layer_rows.h"
#include "model/workspace.h"

namespace loratrain {

/// What DoRA (Liu et al., 2024) adds to one linear with LoRA, for the rows of adapters that have
/// magnitudes m [N] there; n [N] are the norms of the rows of W + scale B A, taken as constant,
/// g = m / n, and x' = drop(x). As PEFT (tuners/lora/dora.py), where a LoRA layer that drops its
/// input drops that of the added product with W too:
///
///   forward:   Y += (g - 1) ∘ V,  V = X' Wᵀ + S Bᵀ
///   backward:  dm += sum over rows of dY ∘ V / n,  dX += drop'((g - 1) ∘ dY W),
///              and LoRA's own gradients are those of g ∘ dY
///
/// Without dropout V is what LoRA's forward adds to Y, and dX that of g ∘ dY: rows are scaled in
/// place, and dm takes V from Y = g ∘ V where that was kept; else it needs a product of its own.
/// Linears without such rows cost a look at the adapters.
class DoraLinear {
  public:
    DoraLinear(const AdapterBank& bank, const Workspace& workspace, const StageLanes& lanes,
               Backend& backend)
        : bank_(bank), workspace_(workspace), lanes_(lanes), backend_(backend) {}

    /// One linear of a microbatch.
    struct Site {
        std::int32_t layer;  ///< counted from the stage's first layer
        Linear linear;
        const LayerRows& rows;
        const std::vector<LoraSlot>& slots;  ///< one per segment
        /// [N, K], not looked at without such rows.
        TensorView w;
        bool alone;  ///< dY is not in the scratch of gradients: that of o and down
    };

    /// backward_m() needs W: rows drop their input, or y, its argument, was not kept.
    static bool needs_product(const Site& site, const TensorView& y);

    /// Before LoRA's product is added to y [T, N]: keeps y of rows that do not drop in the scratch
    /// of gradients, and zeroes them. Only then, and before the bias, forward().
    void keep_sums(const Site& site, const TensorView& y);
    /// y: [T, N] with LoRA's product, without the bias. Uses the scratch of gradients. `kept`: by
    /// keep_sums().
    void forward(const Site& site, const TensorView& x, const TensorView& s, const TensorView& y,
                 bool kept);
    /// g ∘ dY, where dY has another factor 1: dy itself or a copy in scratch, inner() or, of
    /// linears that are alone, gradient().
    TensorView scaled(const Site& site, const TensorView& dy);
    /// Adds to the magnitudes' gradients. y: what forward() left, without a bias, or nothing where
    /// that was not kept. Uses inner(), which may have y; x' is written to `dropped`, which may be
    /// x.
    void backward_m(const Site& site, const TensorView& x, const TensorView& dy,
                    const TensorView& s, const TensorView& dropped, const TensorView& y);
    /// Before and after LoRA's dX [T, K] is made. Uses input(), and gradient() of linears that are
    /// alone; of the others dY is lost.
    void before_x(const Site& site, const TensorView& dy);
    void after_x(const Site& site, const TensorView& dy, const TensorView& dx);

  private:
    using Place = std::tuple<AdapterId, std::int32_t, Linear>;

    /// |W + scale B A|² per row over all lanes, where the adapter has changed since.
    void update_norms(const Site& site, const LoraSegment& segment);
    /// V of a segment's rows.
    void product(const Site& site, const LoraSegment& segment, const TensorView& x,
                 const TensorView& s, const TensorView& dropped, const TensorView& v);
    /// Of the scratch of gradients, in the shape of `like`.
    TensorView kept_rows(const LoraSegment& segment, const TensorView& like) const;
    void drop(const Site& site, const LoraSegment& segment, const TensorView& y,
              const TensorView& x, bool accumulate);

    const AdapterBank& bank_;
    const Workspace& workspace_;
    StageLanes lanes_;
    Backend& backend_;
    std::map<Place, std::int64_t> versions_;  ///< of the norms (AdapterBank::version)
};

}  // namespace loratrain
