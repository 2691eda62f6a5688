#pragma once

#include "model/objective/objectives.h"

namespace loratrain {

/// Losses of rollouts, whose tokens were sampled by a policy q. Per token, with l = log p(target),
/// r = p(target) / q(target), A = the token's advantage:
///   importance_sampling  -r A
///   ppo, grpo            -min(r A, clip(r) A)                 (Schulman et al. 2017, Eq. 7)
///   cispo                -clip(r) A l; the gradient treats clip(r) as a constant
///                                                             (MiniMax 2025, Eq. 4)
///   dro                  -(A l - beta / 2 (log r)²)           (Richemond et al. 2024)
/// clip(r) is r, but at least clip_low and at most clip_high. All losses but dro add beta times k3,
/// an estimate of the KL to the reference: e^d - d - 1 with d = log p(target) of the reference - l
/// (Schulman 2020). A sample's loss is the sum of its tokens', with LossAggregation::sequence their
/// mean. The formulas are those of Tinker (importance_sampling, ppo, cispo, dro) and of TRL 1.16
/// (grpo, cispo, KL, aggregation). Evaluations are plain cross-entropy.
class RolloutObjective final : public CrossEntropyObjective {
  public:
    /// A token's loss, and what is reported of it.
    struct TokenTerm {
        double value = 0.0;
        double slope = 0.0;  ///< in -log p(target)
        double ratio = 0.0;
        double kl = 0.0;  ///< k3; 0 without a reference
        /// ppo, grpo: the smaller one is clip(r) A; cispo: clip(r) is not r.
        bool clipped = false;
    };
    /// Of row `row` of ObjectiveSamples::rows.
    static TokenTerm token_term(const LossJob& loss, const RolloutRows& rows, std::size_t row);

    bool needs_first_pass() const override { return true; }
    bool scales_rows() const override { return true; }
    void row_scales(const ObjectiveSamples& of, double denominator,
                    std::span<float> scales) const override;
    void losses(const ObjectiveSamples& of, std::span<double> losses) const override;
    RewardSums rewards(const ObjectiveSamples& of) const override;
};

}  // namespace loratrain
