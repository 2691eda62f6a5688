#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/rank_group.h"
#include "model/activation_slot.h"
#include "model/frozen_weights.h"
#include "model/outer_lora.h"
#include "model/trained_tokens.h"
#include "model/workspace.h"

namespace loratrain {

/// The last part of the model: final norm, output head and cross-entropy.

/// Final norm, output head and cross-entropy of the last stage. It works in chunks of the rows that
/// have a target and skips other rows. The head is frozen, so gradients of logits are made in place
/// and used at once. If an objective's scales depend on sums over all rows, the chunks run twice
/// (loss_passes.h). A lane computes the logits of its part of the vocabulary; all lanes
/// get equal losses.
class Head {
  public:
    Head(const ReplicaView& view, const FrozenWeights& weights, const Workspace& workspace,
         Backend& backend, const StageLanes& lanes, HeadLora lora, TrainedTokens tokens);

    /// Adds the losses and the numbers of wrong tokens of x [T, H], the output of the last layer,
    /// to the sums. If `dx` has data, it becomes the gradient of the sum over rows of scale * loss
    /// with respect to x. `wrong_counts` may be null. `entropies`: sums to add the entropies of the
    /// rows' distributions to; null = nobody asks.
    void loss(const MicrobatchTables& tables, const TensorView& x, double* loss_sums,
              double* wrong_counts, const TensorView& dx, double* entropies = nullptr);

    /// Rows of logits of a lane's part of the vocabulary, `cols` each, one after the other.
    using LogitsUse = std::function<void(std::span<const float> logits, std::int64_t cols)>;
    /// The logits of all rows that have a target, in their order, some at a time.
    void target_logits(const MicrobatchTables& tables, const TensorView& x, const LogitsUse& use);
    /// The token that draws[i] chooses from the logits of the i-th row that has a target; a lane's
    /// from its part of the vocabulary. `chosen`: backend memory for as many.
    std::vector<ChosenToken> choose_tokens(const MicrobatchTables& tables, const TensorView& x,
                                           std::span<const TokenDraw> draws, ChosenToken* chosen);

    /// Input of the head (after the final norm) at the tables' end rows: [ends, H].
    std::vector<float> hidden_ends(const MicrobatchTables& tables, const TensorView& x);
    /// Takes `gradient` [count, H] with respect to hidden_ends(), for the ends from `first` on,
    /// through the norm to the ends' rows of dx, which loss() has left zero.
    void add_end_gradient(const MicrobatchTables& tables, const TensorView& x, std::int64_t first,
                          std::span<const float> gradient, const TensorView& dx);

    /// Writes the logits of rows [first, first + rows) of x to host memory as [rows, V] floats.
    /// Only on a stage of one lane.
    void logits(const TensorView& x, std::int64_t first, std::int64_t rows, float* host);

  private:
    float norm_offset() const { return view_.lane_model.norm_plus_one ? 1.0F : 0.0F; }
    void cap(const TensorView& logits);
    void norm(const TensorView& x, const TensorView& y);
    void project(const TensorView& normed, const TensorView& logits);
    /// `added`: to dx.
    void project_backward(const TensorView& d_logits, const TensorView& dx, bool added);
    /// Logits of a chunk's rows. Afterwards the rows are in head_rows 0, the normed rows in
    /// head_rows 1, and their LoRA S in `s` (HeadLora::forward).
    TensorView logits_of(const MicrobatchTables& tables, const MicrobatchTables::LabelChunk& chunk,
                         const TensorView& x, Scratch& s);
    void cross_entropy(const CrossEntropy& op);
    void norm_backward(const TensorView& x, const TensorView& d);
    void download_floats(const TensorView& values, float* host);
    void upload_floats(const TensorView& values, const float* host);
    /// Rows [first, first + count) of the head's weights in compute type.
    Scratch head_block(std::int64_t first, std::int64_t count);

    ReplicaView view_;
    const FrozenWeights& weights_;
    const Workspace& workspace_;
    Backend& backend_;
    StageLanes lanes_;
    HeadLora lora_;
    TrainedTokens tokens_;
};

}  // namespace loratrain
