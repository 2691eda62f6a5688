#pragma once

#include "model/layers/branch.h"
#include "model/layers/sublayer_kinds.h"

namespace loratrain {

/// The decoder layers of a stage, over packed samples:
///   x2 = x + mixer(norm x)
///   y  = x2 + mlp(norm x2)
/// with the kinds of mixer and MLP that each layer has (Sublayer), and the norms of Branch. With
/// Recompute::layer backward has made again everything but x: Chen et al. 2016, "Training Deep Nets
/// with Sublinear Memory Cost".
class DecoderLayer {
  public:
    DecoderLayer(const ReplicaView& view, const StagePlan& stage, const AdapterBank& bank,
                 const Workspace& workspace, Backend& backend, const StageLanes& lanes);

    /// LoraLinear::pack_all of layers, each with the rows that it is about to compute.
    struct Computed {
        std::int32_t layer;
        LayerWeights& weights;
        const LayerRows& rows;
    };
    void pack(std::span<const Computed> layers);

    /// Until it is called again, rows of forward() are of texts that `cache` holds (null: not).
    void use_cache(KeyValueCache* cache, KeyValueCache::Rows rows) { texts_ = {cache, rows}; }

    /// y: [T, H], the next layer's input, T = rows.tokens. `layer` counts from the stage's first.
    void forward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                 const LayerActivations& saved, const TensorView& y);

    /// Fills `saved` from saved.x again, to the bit as forward did, without making y.
    void recompute(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                   const LayerActivations& saved);

    /// Turns the running gradient [T, H] from that of y into that of x; without `need_dx` only the
    /// adapter gradients of the mixer's inputs are made, and it is lost.
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
    CachedTexts texts_;
};

}  // namespace loratrain
