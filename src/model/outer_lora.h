#pragma once

#include <vector>

#include "adapter/adapter_bank.h"
#include "config/model_spec.h"
#include "model/microbatch_tables.h"
#include "model/workspace.h"

namespace loratrain {

/// LoRA on the linears outside the layers (outer_linears in config/linears.h).

/// LoRA on the embedding (Linear::embedding): x_t += S_t Bᵀ with S_t = scale * e * A[:, id_t], for
/// the rows of adapters that target it. e is `embedding_scale`, the factor that the backend
/// multiplies embedded rows by (Stage::embed). As in PEFT there is no dropout, and A's column of
/// the padding token has no gradient. A lane holds A's columns of its part of the vocabulary.
class EmbeddingLora {
  public:
    EmbeddingLora(const AdapterBank& bank, const Workspace& workspace, const ModelSpec& model,
                  float embedding_scale, Backend& backend)
        : bank_(bank),
          workspace_(workspace),
          scale_(embedding_scale),
          pad_token_(model.pad_token),
          backend_(backend) {}

    /// Whether any row belongs to an adapter that targets the embedding. If so, the gradient of the
    /// stage's input is needed.
    bool is_wanted(const LayerRows& rows) const;
    /// Adds LoRA to x [T, H], this lane's partial sum of the embedded rows. `ids` [T] are columns
    /// of A; the ids of other lanes are negative.
    void forward(const LayerRows& rows, const std::int32_t* ids, const TensorView& x);
    /// Adds to the gradients of A and B. dx [T, H] is whole on every lane.
    void backward(const LayerRows& rows, const std::int32_t* ids, const TensorView& dx);

  private:
    /// The operator for the rows; it will write S to `s`.
    LoraIds op_of(const LayerRows& rows, const std::int32_t* ids, const TensorView& s);

    const AdapterBank& bank_;
    const Workspace& workspace_;
    float scale_;
    std::int64_t pad_token_;
    Backend& backend_;
    std::vector<LoraSlot> slots_;
};

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
