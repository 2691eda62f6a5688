#pragma once

#include <vector>

#include "adapter/adapter_bank.h"
#include "model/layer_rows.h"

namespace loratrain {

/// Rows of the embedding that adapters train (TensorRole::token_rows): x_t = e R_i for a token with
/// row i, where e is `embedding_scale`, the factor that the backend multiplies embedded rows by
/// (Stage::embed). A head that is tied
/// to the embedding has the same rows: logits[tokens[i]] = R_i x / l with the divisor of the head's
/// product (ModelSpec::logits_scaling); R's gradient is the sum of both. As in PEFT the row of the
/// padding token has no gradient from the embedding. A microbatch without such adapters costs only
/// a look at its adapters. A lane has all rows, and computes with those of its part of the
/// vocabulary: the lanes' gradients add up.
class TrainedTokens {
  public:
    /// `model` is the whole model, as the weights have it.
    TrainedTokens(const AdapterBank& bank, const ModelSpec& model, float embedding_scale,
                  Backend& backend)
        : bank_(bank),
          embedding_scale_(embedding_scale),
          logits_scale_(static_cast<float>(1.0 / model.logits_scaling)),
          pad_token_(model.pad_token),
          tied_(model.tie_word_embeddings),
          backend_(backend) {}

    /// Whether any row belongs to an adapter with such rows. If so, the gradient of the stage's
    /// input is needed.
    bool is_wanted(const LayerRows& rows) const;
    /// Replaces rows of x [T, H], the embedded rows of `ids` [T]; a lane's ids count from its first
    /// token, and those of others are negative.
    void embed(const LayerRows& rows, const std::int32_t* ids, const TensorView& x);
    /// Adds to the gradients. dx: [T, H].
    void embed_backward(const LayerRows& rows, const std::int32_t* ids, const TensorView& dx);
    /// Replaces columns of logits [n, V], which hold the product of the head; x [n, H] are the
    /// normed rows, cut into `segments`.
    void project(const LayerRows& rows, const std::vector<LoraSegment>& segments,
                 const TensorView& x, const TensorView& logits);
    /// Before the backward pass of the head's product: adds to the gradients, makes dx [n, H] what
    /// comes through these columns, and zeroes them in d_logits. False if there are none: nothing
    /// is done.
    bool project_backward(const LayerRows& rows, const std::vector<LoraSegment>& segments,
                          const TensorView& x, const TensorView& d_logits, const TensorView& dx);

  private:
    /// Of the rows' adapters; `slots_` holds them.
    TokenRows op_of(const LayerRows& rows, const std::vector<LoraSegment>& segments);

    const AdapterBank& bank_;
    float embedding_scale_;
    float logits_scale_;
    std::int64_t pad_token_;
    bool tied_;
    Backend& backend_;
    std::vector<TokenSlot> slots_;
};

}  // namespace loratrain
