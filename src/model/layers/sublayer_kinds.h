#pragma once

#include <memory>
#include <vector>

#include "model/layers/sublayer.h"

namespace loratrain {

/// Sublayers of each layer of a stage. This is the one place that chooses their kinds. Layers of
/// the same kind share an object.
class SublayersOfStage {
  public:
    /// `tools` outlives the object.
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
