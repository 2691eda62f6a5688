#pragma once

#include <span>
#include <vector>

#include "backend/rank_group.h"
#include "model/activation_slot.h"
#include "model/frozen_weights.h"
#include "model/head_lora.h"
#include "model/workspace.h"

namespace loratrain {

/// The most likely token of those that a lane has.
struct LikelyToken {
    float logit = 0.0F;
    std::int32_t token = 0;
};

/// Final norm, output head and cross-entropy of the last stage, in chunks of the rows that have a
/// target; other rows are skipped. The head is frozen, so d-logits are made in place and used at
/// once: an objective whose scales depend on sums of all rows has the chunks run twice
/// (objective/loss_passes.h). A lane has the logits of its rows of the vocabulary; all lanes
/// get the same losses.
class Head {
  public:
    Head(const ReplicaView& view, const FrozenWeights& weights, const Workspace& workspace,
         Backend& backend, const StageLanes& lanes, HeadLora lora);

    /// x: [T, H] output of the last layer. Adds losses and wrong counts to the sums; when `dx` has
    /// data it becomes the gradient of sum over rows of scale * loss with respect to x.
    void loss(const MicrobatchTables& tables, const TensorView& x, double* loss_sums,
              double* wrong_counts, const TensorView& dx);

    /// Of each row that has a target, the first of equal ones.
    std::vector<LikelyToken> likely_tokens(const MicrobatchTables& tables, const TensorView& x);

    /// What the head multiplies, behind the final norm, of the tables' ends: [ends, H].
    std::vector<float> hidden_ends(const MicrobatchTables& tables, const TensorView& x);
    /// `gradient`: in that of the ends from `first` on, [count, H]. Goes through the norm to their
    /// rows of dx, which loss() has left zero.
    void add_end_gradient(const MicrobatchTables& tables, const TensorView& x, std::int64_t first,
                          std::span<const float> gradient, const TensorView& dx);

    /// Logits of rows [first, first + rows) of x into host memory, [rows, V] floats; of a stage of
    /// one lane.
    void logits(const TensorView& x, std::int64_t first, std::int64_t rows, float* host);

  private:
    float norm_offset() const { return view_.lane_model.norm_plus_one ? 1.0F : 0.0F; }
    void cap(const TensorView& logits);
    void norm(const TensorView& x, const TensorView& y);
    void project(const TensorView& normed, const TensorView& logits);
    void project_backward(const TensorView& d_logits, const TensorView& dx);
    /// Logits of a chunk's rows, which are in head_rows 0 then, and behind the norm in 1; their S
    /// to `s` (HeadLora::forward).
    TensorView logits_of(const MicrobatchTables& tables, const MicrobatchTables::LabelChunk& chunk,
                         const TensorView& x, Scratch& s);
    void cross_entropy(const CrossEntropy& op);
    void norm_backward(const TensorView& x, const TensorView& d);
    void download_floats(const TensorView& values, float* host);
    void upload_floats(const TensorView& values, const float* host);
    /// Head rows [first, first + count) in compute type.
    Scratch head_block(std::int64_t first, std::int64_t count);

    ReplicaView view_;
    const FrozenWeights& weights_;
    const Workspace& workspace_;
    Backend& backend_;
    StageLanes lanes_;
    HeadLora lora_;
};

}  // namespace loratrain
