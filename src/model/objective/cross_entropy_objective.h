#pragma once

#include "model/objective/objective.h"

namespace loratrain {

/// Weighted mean over the target tokens of the batch of -log p(target), or of the adapter's
/// TokenLoss instead: loss_s = z_s, scale = 1 / sum of the tokens' weights. Evaluations use -log p.
class CrossEntropyObjective : public Objective {
  public:
    bool needs_first_pass() const override { return false; }
    void scales(const ObjectiveSamples& of, double denominator,
                std::span<float> scales) const override;
    void losses(const ObjectiveSamples& of, std::span<double> losses) const override;
};

}  // namespace loratrain
