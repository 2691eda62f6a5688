#pragma once

#include "matrix.h"
#include "sizes.h"

namespace loratrain::kernels {

/// Cross-entropy, whole or divided over lanes. Formulas: src/backend/ops/loss.h.

/// Variant of the loss (TokenLoss of src/backend/ops/loss.h).
struct TokenLoss {
    float label_smoothing = 0.0F;
    float z_loss = 0.0F;
    bool dft = false;
    bool entropy = false;
    bool is_plain() const { return label_smoothing == 0.0F && z_loss == 0.0F && !dft && !entropy; }
};

/// Loss of each row i, and with `gradient` its gradient in place of the logits:
///   loss = log sum exp(logits_i) - logits_i[target_i], or as `form` says
///   logits_i <- scale_i * (softmax(logits_i) - onehot(target_i)), or as `form` says
///   loss_sums[bin_i] += weights_i loss, in row order
///   wrong_counts[bin_i] += 1 if the largest logit (of equal ones the first) is not the target's
struct CrossEntropyParams {
    Matrix logits;
    const std::int32_t* targets = nullptr;
    const float* scales = nullptr;
    const std::int32_t* bins = nullptr;
    double* loss_sums = nullptr;
    double* wrong_counts = nullptr;  ///< null = nobody asks
    bool gradient = true;
    const float* weights = nullptr;  ///< null = 1 each
    TokenLoss form = {};
    /// c > 0: logits are c tanh(x / c), and the gradient is with respect to x. 0: no cap.
    float soft_cap = 0.0F;
    /// Workspace, [rows] each: cross_entropy_row_bytes per row.
    double* row_losses = nullptr;
    std::int32_t* row_wrong = nullptr;
};
cudaError_t cross_entropy(cudaStream_t stream, const CrossEntropyParams& params);

/// ShardStatistics of src/base/operators.h: one row of one lane's logits.
struct LaneStatistics {
    double largest;
    double sum;
    double target;
    double standing;
    double logits;
};

/// Logits of which a lane has some columns, from first_column on. lane_statistics() writes the
/// lane's statistics. When those of all lanes have been gathered, lane_cross_entropy() does what
/// cross_entropy() does, with equal losses and counts on all lanes.
struct LaneLogits {
    CrossEntropyParams of;
    std::int64_t first_column = 0;
    std::int64_t columns = 0;  ///< number of all lanes' columns
    std::int32_t lane = 0;
    std::int32_t lanes = 1;
    LaneStatistics* statistics = nullptr;  ///< [lanes, rows]
};
cudaError_t lane_statistics(cudaStream_t stream, const LaneLogits& params);
cudaError_t lane_cross_entropy(cudaStream_t stream, const LaneLogits& params);

}  // namespace loratrain::kernels
