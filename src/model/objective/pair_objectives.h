#pragma once

#include "model/objective/objective.h"

namespace loratrain {

/// Losses of pairs (chosen, rejected) as TRL has them: the mean over pairs of a function of both
/// samples' log-probabilities, and where LossJob::nll_weight() says so, so much of the mean over
/// the chosen samples' targets of -log p. A pair's loss stands at its chosen sample.
class PairObjective : public Objective {
  public:
    bool needs_first_pass() const override { return true; }
    void scales(const ObjectiveSamples& of, double denominator,
                std::span<float> scales) const override;
    void losses(const ObjectiveSamples& of, std::span<double> losses) const override;
    RewardSums rewards(const ObjectiveSamples& of) const override;

  protected:
    /// Something of both samples of a pair.
    struct Both {
        double chosen = 0.0;
        double rejected = 0.0;
    };
    struct PairLoss {
        double value = 0.0;
        Both slopes;  ///< in the log-probabilities
        Both rewards;
        Both logps;  ///< as TRL reports them: where it compares means, per target, but of dpo
    };
    /// Of the samples first and first + 1.
    virtual PairLoss pair_loss(const ObjectiveSamples& of, std::size_t first) const = 0;
};

/// Direct Preference Optimization: f(h), h = g(chosen) - g(rejected), g(s) = z_s under the base -
/// z_s, the gain in log-probability, for ipo per target; rewards are beta times the whole gain.
///   sigmoid: f = -(1 - e) log sigmoid(beta h) - e log sigmoid(-beta h), e = label_smoothing
///            (Rafailov et al. 2023, Eq. 7; e: Mitchell 2023, conservative DPO)
///   hinge:   f = max(0, 1 - beta h)                            (Zhao et al. 2023, SLiC)
///   ipo:     f = (h - 1 / (2 beta))²                           (Azar et al. 2023, Eq. 17)
class DpoObjective final : public PairObjective {
  protected:
    PairLoss pair_loss(const ObjectiveSamples& of, std::size_t first) const override;
};

/// Contrastive Preference Optimization (Xu et al. 2024, Eq. 5): DPO with g(s) = -z_s (ipo: per
/// target).
/// SimPO (Meng et al. 2024, Eq. 6): sigmoid's f(h - gamma / beta), g(s) = -z_s per target.
/// Rewards are beta g.
class CpoObjective final : public PairObjective {
  protected:
    PairLoss pair_loss(const ObjectiveSamples& of, std::size_t first) const override;
};

/// Odds Ratio Preference Optimization (Hong et al. 2024, Eq. 6): -beta log sigmoid(o(chosen) -
/// o(rejected)), o(s) = log(p / (1 - p)), log p = -z_s per target; rewards are beta log p.
class OrpoObjective final : public PairObjective {
  protected:
    PairLoss pair_loss(const ObjectiveSamples& of, std::size_t first) const override;
};

}  // namespace loratrain
