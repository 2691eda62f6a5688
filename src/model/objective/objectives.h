#pragma once

#include <cmath>

#include "model/objective/objective.h"

namespace loratrain {

/// The losses: cross-entropy, preferences, contrastive instruction tuning.

/// log(1 / (1 + exp(-x))), without overflow for any x.
inline double log_sigmoid(double x) {
    return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

inline double sigmoid(double x) {
    return std::exp(log_sigmoid(x));
}

/// Weighted mean over the target tokens of the batch of -log p(target), or of the adapter's
/// TokenLoss instead: loss_s = z_s, scale = 1 / sum of the tokens' weights. Evaluations use -log p.
class CrossEntropyObjective : public Objective {
  public:
    bool needs_first_pass() const override { return false; }
    void scales(const ObjectiveSamples& of, double denominator,
                std::span<float> scales) const override;
    void losses(const ObjectiveSamples& of, std::span<double> losses) const override;
};

/// Losses of pairs (chosen, rejected) as TRL implements them: the mean over pairs of a function of
/// both samples' log-probabilities, plus LossJob::nll_weight() times the mean of -log p over the
/// chosen samples' targets. A pair's loss stands at its chosen sample.
class PairObjective : public Objective {
  public:
    bool needs_first_pass() const override { return true; }
    void scales(const ObjectiveSamples& of, double denominator,
                std::span<float> scales) const override;
    void losses(const ObjectiveSamples& of, std::span<double> losses) const override;
    RewardSums rewards(const ObjectiveSamples& of) const override;

  protected:
    /// A value for each sample of a pair.
    struct Both {
        double chosen = 0.0;
        double rejected = 0.0;
    };
    struct PairLoss {
        double value = 0.0;
        Both slopes;  ///< derivatives with respect to the log-probabilities
        Both rewards;
        Both logps;  ///< as TRL reports them: per target if the loss compares means, except for dpo
    };
    /// Loss of the pair of samples `first` and `first` + 1.
    virtual PairLoss pair_loss(const ObjectiveSamples& of, std::size_t first) const = 0;
};

/// Direct Preference Optimization: f(h) with h = g(chosen) - g(rejected). The gain in
/// log-probability g(s) is z_s under the base minus z_s; for ipo it is divided by the number of
/// targets. Rewards are beta times the undivided gain.
///   sigmoid: f = -(1 - e) log sigmoid(beta h) - e log sigmoid(-beta h), e = label_smoothing
///            (Rafailov et al. 2023, Eq. 7; e: Mitchell 2023, conservative DPO)
///   hinge:   f = max(0, 1 - beta h)                            (Zhao et al. 2023, SLiC)
///   ipo:     f = (h - 1 / (2 beta))²                           (Azar et al. 2023, Eq. 17)
class DpoObjective final : public PairObjective {
  protected:
    PairLoss pair_loss(const ObjectiveSamples& of, std::size_t first) const override;
};

/// Contrastive Preference Optimization and SimPO: as DPO, but without a reference.
/// - CPO (Xu et al. 2024, Eq. 5): g(s) = -z_s; for ipo it is divided by the number of targets.
/// - SimPO (Meng et al. 2024, Eq. 6): sigmoid's f(h - gamma / beta), with g(s) = -z_s divided by
///   the number of targets.
///
/// Rewards are beta g.
class CpoObjective final : public PairObjective {
  protected:
    PairLoss pair_loss(const ObjectiveSamples& of, std::size_t first) const override;
};

/// Odds Ratio Preference Optimization (Hong et al. 2024, Eq. 6): -beta log sigmoid(o(chosen) -
/// o(rejected)) with o(s) = log(p / (1 - p)), where log p = -z_s divided by the number of targets.
/// Rewards are beta log p.
class OrpoObjective final : public PairObjective {
  protected:
    PairLoss pair_loss(const ObjectiveSamples& of, std::size_t first) const override;
};

/// Kahneman-Tversky Optimization (Ethayarajh et al. 2024, Eq. 8) as TRL implements it, over groups
/// of k examples and their k KL samples (data/kl_groups.h). The gain in log-probability r_s is z_s
/// under the base minus z_s. KL = max(0, mean of r over the group's KL samples); the gradient
/// treats KL as a constant.
///   loss_s = desirable_weight (1 - sigmoid(beta (r_s - KL)))    desirable example
///            undesirable_weight (1 - sigmoid(beta (KL - r_s)))  undesirable example
///            0                                                  KL sample
/// Rewards are beta r.
class KtoObjective final : public Objective {
  public:
    bool needs_first_pass() const override { return true; }
    void scales(const ObjectiveSamples& of, double denominator,
                std::span<float> scales) const override;
    void losses(const ObjectiveSamples& of, std::span<double> losses) const override;
    RewardSums rewards(const ObjectiveSamples& of) const override;
};

/// Contrastive Instruction Tuning (Yan et al. 2024, CoIN), over N pairs of samples: an instruction
/// and its paraphrase, with the same answer. Symbols, for a batch: G = cross-entropy of all target
/// tokens (CrossEntropyObjective); u_i and v_i = hidden states of the two samples of pair i
/// (ObjectiveSamples::hidden); S_ij = cos(u_i, v_j) / temperature.
///   C = (mean_i -log softmax(S_i:)_i + mean_j -log softmax(S_:j)_j) / 2,
///   L = G + w C, w = min(lambda, G / C); the gradient treats w as a constant.
/// w is the minimum, as in mLoRA and in the authors' program: the weight of C is lambda, and less
/// where lambda C would exceed G. With the maximum nothing would bound w as C falls. Losses per
/// sample are those of G, in evaluations too.
class CitObjective final : public CrossEntropyObjective {
  public:
    bool compares_hidden() const override { return true; }
    HiddenLoss hidden_loss(const ObjectiveSamples& of, double denominator) const override;
};

}  // namespace loratrain
