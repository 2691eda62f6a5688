#pragma once

#include <vector>

#include "adapter/adapter_bank.h"
#include "model/microbatch_tables.h"
#include "model/workspace.h"

namespace loratrain {

/// LoRA on the embedding (Linear::embedding): x_t += S_t Bᵀ with S_t = scale * e * A[:, id_t], for
/// the rows of adapters that target it. e is the factor of the embedding
/// (ModelSpec::embedding_scale). As in PEFT there is no dropout, and A's column of the padding
/// token has no gradient. A lane holds A's columns of its part of the vocabulary.
class EmbeddingLora {
  public:
    /// `model` is the whole model, as the weights have it.
    EmbeddingLora(const AdapterBank& bank, const Workspace& workspace, const ModelSpec& model,
                  Backend& backend)
        : bank_(bank),
          workspace_(workspace),
          scale_(static_cast<float>(model.embedding_scale())),
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

}  // namespace loratrain
