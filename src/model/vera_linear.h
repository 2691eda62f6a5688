#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "adapter/adapter_bank.h"
#include "model/layer_rows.h"

namespace loratrain {

/// What VeRA (Kopiczko et al., 2024) adds to one linear with LoRA. As PEFT (tuners/vera/layer.py),
///
///   Y = X Wᵀ + (drop(X) Aᵀ diag(scale_d) Bᵀ) diag(scale_b) = X Wᵀ + drop(X) Aᵀ B'ᵀ
///
/// with B' = diag(scale_b) B diag(scale_d): LoRA of scaling 1 with a frozen A, whose B' is made
/// where a layer is computed and whose gradient becomes the scales' at once.
class VeraLinear {
  public:
    VeraLinear(const AdapterBank& bank, Backend& backend) : bank_(bank), backend_(backend) {}

    /// Makes B' of a layer unless it is there: before an op takes the slot's B.
    void make_factor(AdapterId adapter, std::int32_t layer, Linear linear);
    /// Passes the gradients of B' on to the scales, for adapters of the rows that are VeRA.
    void take_gradients(const LayerRows& rows, std::int32_t layer, Linear linear) const;

  private:
    struct Made {
        std::int32_t layer = -1;
        std::int64_t version = -1;  ///< AdapterBank::version
        friend bool operator==(const Made&, const Made&) = default;
    };

    const AdapterBank& bank_;
    Backend& backend_;
    std::map<std::pair<AdapterId, Linear>, Made> made_;
};

}  // namespace loratrain
