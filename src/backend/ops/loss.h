#pragma once

#include <cstdint>

#include "base/operators.h"
#include "base/tensor.h"

namespace loratrain {

/// How the loss of a row departs from cross-entropy: with L = log sum exp(logits), t the target's
/// logit, m the mean of the logits, e = label_smoothing and p = exp(t - L)
///   loss = w (L - (1 - e) t - e m) + z_loss L²,  w = p with dft, not differentiated, else 1
///   d loss / d logits_j = (w + 2 z_loss L) softmax_j - w ((1 - e) onehot_j + e / V)
/// e: LabelSmoother of transformers (Szegedy et al. 2016); dft: Wu et al. 2025, Eq. 9, as TRL;
/// z_loss: Chowdhery et al. 2022 (PaLM), section 5.
struct TokenLoss {
    float label_smoothing = 0.0F;
    float z_loss = 0.0F;
    bool dft = false;
    bool is_plain() const { return label_smoothing == 0.0F && z_loss == 0.0F && !dft; }
    friend bool operator==(const TokenLoss&, const TokenLoss&) = default;
};

/// Per row i: loss = log sum exp(logits_i) - logits_i[target_i]; then logits_i <- scale_i *
/// (softmax(logits_i) - onehot(target_i)) in place when `gradient`; or both as `form` says.
/// loss_sums[bin_i] += loss (fp64) and wrong_counts[bin_i] += 1 where the largest logit is not the
/// target's (first index wins ties), both in row order. Callers give rows in chunks, as all logits
/// at once would be a stage's largest buffer (design.md "Saved activations").
struct CrossEntropy {
    TensorView logits;                      ///< [n, V]
    const std::int32_t* targets = nullptr;  ///< [n], in [0, V)
    const float* scales = nullptr;          ///< [n]
    const std::int32_t* bins = nullptr;     ///< [n]
    double* loss_sums = nullptr;            ///< [number of bins]
    double* wrong_counts = nullptr;         ///< [number of bins]
    bool gradient = true;
    const float* weights = nullptr;  ///< [n] of the losses in loss_sums; null: 1 each
    TokenLoss form = {};
    /// Logits are c tanh(x / c) (SoftCap); the gradient is that of x then. 0: they are not.
    float soft_cap = 0.0F;
};

/// x <- cap tanh(x / cap), in place.
struct SoftCap {
    TensorView x;
    float cap = 1.0F;
};

/// CrossEntropy of a stage whose lanes have some columns of the logits each. Every lane first makes
/// the statistics of its columns (shard_statistics; with `of.gradient` the logits are of no other
/// use then). When those of all lanes have been gathered, it makes the rest
/// (sharded_cross_entropy): the numbers of CrossEntropy but for rounding, losses and counts with
/// equal bits on all lanes.
struct ShardedCrossEntropy {
    CrossEntropy of;  ///< logits: [n, own columns]; targets: among the columns of all lanes
    std::int64_t first_column = 0;  ///< of the own ones; lanes have columns in their order
    std::int64_t columns = 0;       ///< of all lanes
    std::int32_t lane = 0;
    std::int32_t lanes = 1;
    ShardStatistics* statistics = nullptr;  ///< [lanes, n]
};

}  // namespace loratrain
