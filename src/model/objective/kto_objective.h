#pragma once

#include "model/objective/objective.h"

namespace loratrain {

/// Kahneman-Tversky Optimization (Ethayarajh et al. 2024, Eq. 8) as TRL has it, over groups of k
/// examples and their k KL samples (data/kl_groups.h): with r_s = z_s under the base - z_s, the
/// gain in log-probability, and KL = max(0, mean of r over the group's KL samples), which is no
/// function of the adapter to the gradient,
///   loss_s = desirable_weight (1 - sigmoid(beta (r_s - KL))) of a desirable example,
///            undesirable_weight (1 - sigmoid(beta (KL - r_s))) of another one,
///   0 of a KL sample. Rewards are beta r.
class KtoObjective final : public Objective {
  public:
    bool needs_first_pass() const override { return true; }
    void scales(const ObjectiveSamples& of, double denominator,
                std::span<float> scales) const override;
    void losses(const ObjectiveSamples& of, std::span<double> losses) const override;
    RewardSums rewards(const ObjectiveSamples& of) const override;
};

}  // namespace loratrain
