#pragma once

#include <cstdint>
#include <span>

#include "base/operators.h"
#include "base/tensor.h"
#include "base/token_choice.h"

namespace loratrain {

/// Operators on logits: cross-entropy and its variants, whole or divided over lanes, and the choice
/// of tokens.

/// Variant of the loss of a row. With L = log sum exp(logits), t the target's logit, m the mean of
/// the logits, e = label_smoothing and p = exp(t - L):
///   loss = w (L - (1 - e) t - e m) + z_loss L²
///   d loss / d logits_j = (w + 2 z_loss L) softmax_j - w ((1 - e) onehot_j + e / V)
///   w = p with dft (not differentiated), else 1
/// With `entropy` it is the entropy of softmax(logits), L - sum_j softmax_j logits_j, which is only
/// reported: its gradient is 0.
/// Sources: label_smoothing: LabelSmoother of transformers (Szegedy et al. 2016); dft: Wu et al.
/// 2025, Eq. 9, as in TRL; z_loss: Chowdhery et al. 2022 (PaLM), section 5.
struct TokenLoss {
    float label_smoothing = 0.0F;
    float z_loss = 0.0F;
    bool dft = false;
    bool entropy = false;
    bool is_plain() const { return label_smoothing == 0.0F && z_loss == 0.0F && !dft && !entropy; }
    friend bool operator==(const TokenLoss&, const TokenLoss&) = default;
};

/// Loss of each row i, and with `gradient` its gradient in place of the logits:
///   loss = log sum exp(logits_i) - logits_i[target_i], or as `form` says
///   logits_i <- scale_i d loss / d logits_i = scale_i (softmax(logits_i) - onehot(target_i))
///   loss_sums[bin_i] += weights_i loss, in fp64, in row order
///   wrong_counts[bin_i] += 1 if the largest logit (of equal ones the first) is not the target's
/// Callers give rows in chunks, since all logits at once would be a stage's largest buffer
/// (design.md "Saved activations").
struct CrossEntropy {
    TensorView logits;                      ///< [n, V]
    const std::int32_t* targets = nullptr;  ///< [n], in [0, V)
    const float* scales = nullptr;          ///< [n]
    const std::int32_t* bins = nullptr;     ///< [n]
    double* loss_sums = nullptr;            ///< [number of bins]
    double* wrong_counts = nullptr;         ///< [number of bins]; null = nobody asks
    bool gradient = true;
    const float* weights = nullptr;  ///< [n]; null = 1 each
    TokenLoss form = {};
    /// c > 0: logits are c tanh(x / c) (SoftCap), and the gradient is with respect to x. 0: no cap.
    float soft_cap = 0.0F;
};

/// x <- cap tanh(x / cap), in place.
struct SoftCap {
    TensorView x;
    float cap = 1.0F;
};

/// CrossEntropy of a stage whose lanes each have some columns of the logits, in two operators:
///   shard_statistics       statistics of the lane's own columns. With `of.gradient`, only
///                          sharded_cross_entropy may use the logits afterwards.
///   sharded_cross_entropy  losses, counts and gradients, after the statistics of all lanes
///                          have been gathered.
///                          Equal to CrossEntropy up to rounding.
///                          Losses and counts have equal bits on all lanes.
struct ShardedCrossEntropy {
    CrossEntropy of;  ///< logits: [n, own columns]; targets: numbers among all lanes' columns
    std::int64_t first_column = 0;  ///< number of the first own column; lanes are in order
    std::int64_t columns = 0;       ///< number of all lanes' columns
    std::int32_t lane = 0;
    std::int32_t lanes = 1;
    ShardStatistics* statistics = nullptr;  ///< [lanes, n]
};

/// tokens_i = choose_token(logits_i, draws_i) of base/token_choice.h. A GPU adds up weights in
/// another order, so that a token can differ where `uniform` lies at the border of two.
struct ChooseTokens {
    TensorView logits;                 ///< [n, V]
    std::span<const TokenDraw> draws;  ///< [host] [n]
    ChosenToken* tokens = nullptr;     ///< [n]
};

}  // namespace loratrain
