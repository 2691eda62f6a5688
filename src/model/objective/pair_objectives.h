#pragma once

#include "model/objective/objective.h"

namespace loratrain {

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

}  // namespace loratrain
