#pragma once

#include <memory>
#include <vector>

#include "model/layers/sublayer.h"

namespace loratrain {

/// The sublayers of each layer of a stage, of the kinds that the model has there: the one place
/// that chooses them. Layers of a kind share its object.
class SublayersOfStage {
  public:
    /// `tools` outlive it.
    SublayersOfStage(const StagePlan& stage, const LayerTools& tools);

    /// `layer` counts from the stage's first.
    Sublayer& mixer(std::int32_t layer) const { return *of(layer).mixer; }
    Sublayer& mlp(std::int32_t layer) const { return *of(layer).mlp; }

  private:
    struct OfLayer {
        Sublayer* mixer;
        Sublayer* mlp;
    };
    const OfLayer& of(std::int32_t layer) const { return layers_[static_cast<std::size_t>(layer)]; }

    std::vector<std::unique_ptr<Sublayer>> kinds_;
    std::vector<OfLayer> layers_;
};

}  // namespace loratrain
