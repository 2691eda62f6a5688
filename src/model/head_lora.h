#pragma once

#include <vector>

#include "adapter/adapter_bank.h"
#include "config/model_spec.h"
#include "model/microbatch_tables.h"
#include "model/workspace.h"

namespace loratrain {

/// LoRA on the output head (Linear::head), for a chunk of the head's rows (Head): logits += S Bᵀ
/// with S = scale / l X Aᵀ, for the rows of adapters that target it. l is the divisor of the head's
/// product (ModelSpec::logits_scaling). There is no dropout. A chunk without such rows costs only a
/// look at its adapters.
class HeadLora {
  public:
    /// `model` is the whole model or a lane's. `layers` is the stage's number of layers.
    HeadLora(const AdapterBank& bank, const Workspace& workspace, const ModelSpec& model,
             std::int32_t layers, Backend& backend)
        : bank_(bank),
          workspace_(workspace),
          scale_(static_cast<float>(1.0 / model.logits_scaling)),
          layers_(layers),
          backend_(backend) {}

    /// Adds LoRA to logits [n, V], which hold the product of the head; x [n, H] are the normed
    /// rows. Returns S.
    [[nodiscard]] Scratch forward(const LayerRows& rows, const std::vector<LoraSegment>& segments,
                                  const TensorView& x, const TensorView& logits);
    /// Adds to the gradients of A and B, and to dx [n, H] of the lane. `s` is S as forward()
    /// returned it.
    void backward(const LayerRows& rows, const std::vector<LoraSegment>& segments,
                  const TensorView& x, const TensorView& s, const TensorView& d_logits,
                  const TensorView& dx);

  private:
    /// Whether any segment's adapter targets the head. If so, slots_ holds the segments' slots.
    bool gather(const LayerRows& rows, const std::vector<LoraSegment>& segments);

    const AdapterBank& bank_;
    const Workspace& workspace_;
    float scale_;
    std::int32_t layers_;
    Backend& backend_;
    std::vector<LoraSlot> slots_;
};

}  // namespace loratrain
