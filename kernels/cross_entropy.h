#pragma once

#include "matrix.h"
#include "sizes.h"

namespace loratrain::kernels {

/// How the loss and the gradient of a row depart from cross-entropy, as the program's TokenLoss.
struct TokenLoss {
    float label_smoothing = 0.0F;
    float z_loss = 0.0F;
    bool dft = false;
    bool is_plain() const { return label_smoothing == 0.0F && z_loss == 0.0F && !dft; }
};

/// Per row i: loss = log sum exp(logits_i) - logits_i[target_i], then with `gradient`
/// logits_i <- scale_i * (softmax(logits_i) - onehot(target_i)) in place. Adds losses to
/// loss_sums[bin_i], and 1 to wrong_counts[bin_i] where the first largest logit is not the
/// target's, in row order.
struct CrossEntropyParams {
    Matrix logits;
    const std::int32_t* targets = nullptr;
    const float* scales = nullptr;
    const std::int32_t* bins = nullptr;
    double* loss_sums = nullptr;
    double* wrong_counts = nullptr;
    bool gradient = true;
    const float* weights = nullptr;  ///< of the losses in loss_sums; null: 1 each
    TokenLoss form = {};
    /// Logits are c tanh(x / c): the gradient is that of x. 0: they are not.
    float soft_cap = 0.0F;
    /// Workspace [rows] each: cross_entropy_row_bytes of a row.
    double* row_losses = nullptr;
    std::int32_t* row_wrong = nullptr;
};
cudaError_t cross_entropy(cudaStream_t stream, const CrossEntropyParams& params);

/// Of one row of one lane's logits, as base/operators.h of the program.
struct LaneStatistics {
    double largest;
    double sum;
    double target;
    double standing;
    double logits;
};

/// The columns of the logits that a lane has, first_column the first of them. lane_statistics
/// writes the lane's own, which are then gathered; lane_cross_entropy is cross_entropy with those
/// of all lanes, with equal losses and counts on all of them; without a soft cap.
struct LaneLogits {
    CrossEntropyParams of;
    std::int64_t first_column = 0;
    std::int64_t columns = 0;  ///< of all lanes
    std::int32_t lane = 0;
    std::int32_t lanes = 1;
    LaneStatistics* statistics = nullptr;  ///< [lanes, rows]
};
cudaError_t lane_statistics(cudaStream_t stream, const LaneLogits& params);
cudaError_t lane_cross_entropy(cudaStream_t stream, const LaneLogits& params);

}  // namespace loratrain::kernels
