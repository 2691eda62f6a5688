#pragma once

#include <memory>
#include <vector>

#include "model/layers/branch.h"
#include "model/layers/sublayer.h"

namespace loratrain {

/// The decoder layers of a stage, and the kinds of their sublayers.

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

/// Computes the decoder layers, over packed samples:
///   x2 = x + mixer(norm x)
///   y  = x2 + mlp(norm x2)
/// Each layer has its own kinds of mixer and MLP (Sublayer), and the norms of Branch. With
/// Recompute::layer only x is kept and backward recomputes everything else (Chen et al. 2016,
/// "Training Deep Nets with Sublinear Memory Cost").
class DecoderLayer {
  public:
    DecoderLayer(const ReplicaView& view, const StagePlan& stage, const AdapterBank& bank,
                 const Workspace& workspace, Backend& backend, const StageLanes& lanes);

    /// Packs the LoRA factors of layers (LoraLinear::pack_all), each with the rows that it is about
    /// to compute.
    struct Computed {
        std::int32_t layer;
        LayerWeights& weights;
        const LayerRows& rows;
    };
    void pack(std::span<const Computed> layers);

    /// Sets the cache of the texts that later forward() calls work on; null: their rows are not
    /// texts that are being generated.
    void use_cache(TextCache* cache) { texts_ = cache; }

    /// Computes y [T, H], the next layer's input, with T = rows.tokens. `layer` counts from the
    /// stage's first layer.
    void forward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                 const LayerActivations& saved, const TensorView& y);

    /// Recomputes `saved` from saved.x, with the bits of forward(). Does not make y.
    void recompute(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                   const LayerActivations& saved);

    /// Replaces `gradient` [T, H], the gradient of y, with the gradient of x, and adds to the
    /// gradients of the adapters. Without `need_dx` it ends with the adapter gradients of the
    /// mixer's input linears, and `gradient` is lost.
    void backward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                  const LayerActivations& saved, const TensorView& gradient, bool need_dx);

  private:
    Branch around_mixer(const LayerSite& at, const TensorView& gradient = {}) const;
    Branch around_mlp(const LayerSite& at, const TensorView& y,
                      const TensorView& gradient = {}) const;

    LoraLinear linear_;
    LayerTools tools_;
    SublayersOfStage sublayers_;
    std::vector<GroupSite> packed_;
    TextCache* texts_ = nullptr;
};

}  // namespace loratrain
