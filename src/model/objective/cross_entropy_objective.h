#pragma once

#include "model/objective/objective.h"

namespace loratrain {

/// Mean of -log p(target) over the target tokens of the batch by their weights: loss_s = z_s, scale
/// = 1 / sum of weights.
class CrossEntropyObjective final : public Objective {
  public:
    bool needs_first_pass() const override { return false; }
    void scales(const ObjectiveSamples& of, double denominator,
                std::span<float> scales) const override;
    void losses(const ObjectiveSamples& of, std::span<double> losses) const override;
};

}  // namespace loratrain
