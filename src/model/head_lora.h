#pragma once

#include <vector>

#include "adapter/adapter_bank.h"
#include "config/model_spec.h"
#include "model/microbatch_tables.h"
#include "model/workspace.h"

namespace loratrain {

/// LoRA on the output head (Linear::head), chunk by chunk of its rows (Head): logits += S Bᵀ with
/// S = scale / l X Aᵀ for the rows of adapters that have it, without dropout, where l divides the
/// head's product (ModelSpec::logits_scaling). Chunks without such rows cost a look at the
/// adapters.
class HeadLora {
  public:
    /// `model`: the whole one, or a lane's. `layers`: of the stage.
    HeadLora(const AdapterBank& bank, const Workspace& workspace, const ModelSpec& model,
             std::int32_t layers, Backend& backend)
        : bank_(bank),
          workspace_(workspace),
          scale_(static_cast<float>(1.0 / model.logits_scaling)),
          layers_(layers),
          backend_(backend) {}

    /// x: [n, H], the normed rows; logits: [n, V] with the product of the head. Returns S.
    [[nodiscard]] Scratch forward(const LayerRows& rows, const std::vector<LoraSegment>& segments,
                                  const TensorView& x, const TensorView& logits);
    /// From the S of forward(): adds to gradients and to dx [n, H] of the lane.
    void backward(const LayerRows& rows, const std::vector<LoraSegment>& segments,
                  const TensorView& x, const TensorView& s, const TensorView& d_logits,
                  const TensorView& dx);

  private:
    /// Whether any of the segments has LoRA on the head; then slots_ has theirs.
    bool gather(const LayerRows& rows, const std::vector<LoraSegment>& segments);

    const AdapterBank& bank_;
    const Workspace& workspace_;
    float scale_;
    std::int32_t layers_;
    Backend& backend_;
    std::vector<LoraSlot> slots_;
};

}  // namespace loratrain
