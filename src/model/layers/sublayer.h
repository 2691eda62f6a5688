#pragma once

#include <cstdint>

#include "adapter/adapter_bank.h"
#include "backend/rank_group.h"
#include "model/activation_slot.h"
#include "model/group_site.h"
#include "model/key_value_cache.h"
#include "model/lora_linear.h"

namespace loratrain {

class Branch;

/// What all kinds of sublayers of a stage work with.
struct LayerTools {
    ReplicaView view;
    const AdapterBank& bank;
    const Workspace& workspace;
    Backend& backend;
    StageLanes lanes;
    LoraLinear& linear;

    const ModelSpec& model() const { return view.lane_model; }
    /// Norms multiply by it and their weight together.
    float norm_offset() const { return model().norm_plus_one ? 1.0F : 0.0F; }
    /// The columns of each linear of the group in their output y, side by side.
    PerLinear outputs_of(const GroupSite& at, const TensorView& y) const;
    /// And in their S, of those that the rows use.
    PerLinear columns_of(const GroupSite& at, const TensorView& s) const;
};

/// Texts that are being written, where rows are theirs.
struct CachedTexts {
    KeyValueCache* cache = nullptr;  ///< null: they are not
    KeyValueCache::Rows rows{};
};

/// A layer of the stage at work on rows of a microbatch.
struct LayerSite {
    std::int32_t layer;  ///< counted from the stage's first
    LayerWeights& weights;
    const LayerRows& rows;
    const LayerActivations& saved;
    CachedTexts texts{};

    const AttentionSpec& attention() const { return weights.spec.attention(); }
    const DenseSpec& dense() const { return weights.spec.dense(); }
    const ExpertSpec& experts() const { return *weights.spec.experts(); }
    GroupSite group(LinearGroup which) const {
        return {weights.groups[static_cast<std::size_t>(which)], which, layer, rows};
    }
};

/// A kind of what a layer adds to its residual stream: of the mixer, in which the tokens of a
/// sample see each other, or of the MLP behind it. One object serves all layers of its kind: what
/// belongs to a layer is in LayerSite, the stream and its norms in Branch.
class Sublayer {
  public:
    virtual ~Sublayer() = default;
    /// Fills what backward reads of at.saved, and the branch's sum. Without a sum (Branch::has_sum)
    /// only the former, with the same bits: activations are made again.
    virtual void forward(const LayerSite& at, const Branch& branch) = 0;
    /// Adds to the gradients of the adapters, and to the running gradient (Branch::gradient) that
    /// of the branch's x; without `need_dx` the running gradient is lost.
    virtual void backward(const LayerSite& at, const Branch& branch, bool need_dx) = 0;
};

}  // namespace loratrain
