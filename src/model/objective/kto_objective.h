#pragma once

#include "model/objective/objective.h"

namespace loratrain {

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

}  // namespace loratrain
