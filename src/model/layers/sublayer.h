#pragma once

#include <cstdint>

#include "adapter/adapter_bank.h"
#include "backend/rank_group.h"
#include "model/activation_slot.h"
#include "model/group_site.h"
#include "model/lora_linear.h"
#include "model/text_cache.h"

namespace loratrain {

class Branch;

/// The interface of sublayers: mixers and MLPs of a layer.

/// Objects that all sublayers of a stage work with.
struct LayerTools {
    ReplicaView view;
    const AdapterBank& bank;
    const Workspace& workspace;
    Backend& backend;
    StageLanes lanes;
    LoraLinear& linear;

    const ModelSpec& model() const { return view.lane_model; }
    /// Offset of norm weights: norms multiply by it plus their weight.
    float norm_offset() const { return model().norm_plus_one ? 1.0F : 0.0F; }
    /// Columns of each linear of the group in y, where their outputs are side by side.
    PerLinear outputs_of(const GroupSite& at, const TensorView& y) const;
    /// Columns of each linear of the group in S, those that the rows use.
    PerLinear columns_of(const GroupSite& at, const TensorView& s) const;
};

/// A layer of the stage, with the rows of a microbatch that it computes.
struct LayerSite {
    std::int32_t layer;  ///< counted from the stage's first
    LayerWeights& weights;
    const LayerRows& rows;
    const LayerActivations& saved;
    TextCache* texts = nullptr;  ///< of the rows; null: they are not of texts being generated

    const AttentionSpec& attention() const { return weights.spec.attention(); }
    const DeltaNetSpec& delta_net() const { return *weights.spec.delta_net(); }
    const DenseSpec& dense() const { return weights.spec.dense(); }
    const ExpertSpec& experts() const { return *weights.spec.experts(); }
    GroupSite group(LinearGroup which) const {
        return {weights.groups[static_cast<std::size_t>(which)], which, layer, rows};
    }
};

/// One kind of sublayer, whose output a layer adds to its residual stream: a mixer, in which the
/// tokens of a sample see each other, or the MLP after it. One object serves all layers of its
/// kind. LayerSite holds the state of a layer; Branch holds the residual stream and its norms.
class Sublayer {
  public:
    virtual ~Sublayer() = default;
    /// Fills the parts of at.saved that backward reads, and the branch's sum. Without a sum
    /// (Branch::has_sum) only fills at.saved, with the same bits: this is how activations are
    /// recomputed.
    virtual void forward(const LayerSite& at, const Branch& branch) = 0;
    /// Adds to the gradients of the adapters, and adds the gradient of the branch's x to the
    /// running gradient (Branch::gradient). Without `need_dx` the running gradient is lost.
    virtual void backward(const LayerSite& at, const Branch& branch, bool need_dx) = 0;
};

}  // namespace loratrain
