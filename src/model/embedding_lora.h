#pragma once

#include <vector>

#include "adapter/adapter_bank.h"
#include "model/microbatch_tables.h"
#include "model/workspace.h"

namespace loratrain {

/// LoRA on the embedding (Linear::embedding): x_t += S_t Bᵀ with S_t = scale * e * A[:, id_t] for
/// the rows of adapters that have it, where e multiplies the embedding
/// (ModelSpec::embedding_scale). As in PEFT there is no dropout, and A's column of the padding
/// token has no gradient. A lane has A's columns of its part of the vocabulary.
class EmbeddingLora {
  public:
    /// `model`: the whole one, of the weights.
    EmbeddingLora(const AdapterBank& bank, const Workspace& workspace, const ModelSpec& model,
                  Backend& backend)
        : bank_(bank),
          workspace_(workspace),
          scale_(static_cast<float>(model.embedding_scale())),
          pad_token_(model.pad_token),
          backend_(backend) {}

    /// Whether any row is of an adapter that has it: then the gradient of the stage's input counts.
    bool is_wanted(const LayerRows& rows) const;
    /// x: [T, H], a lane's part of the embedded rows. `ids`: [T], columns of A, negative for those
    /// of other lanes.
    void forward(const LayerRows& rows, const std::int32_t* ids, const TensorView& x);
    /// dx: [T, H], whole on every lane: adds to gradients.
    void backward(const LayerRows& rows, const std::int32_t* ids, const TensorView& dx);

  private:
    /// Of the rows, with S to be made.
    LoraIds op_of(const LayerRows& rows, const std::int32_t* ids, const TensorView& s);

    const AdapterBank& bank_;
    const Workspace& workspace_;
    float scale_;
    std::int64_t pad_token_;
    Backend& backend_;
    std::vector<LoraSlot> slots_;
};

}  // namespace loratrain
