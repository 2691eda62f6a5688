#pragma once

#include "model/objective/objective.h"

namespace loratrain {

/// Mean over the target tokens of the batch, by their weights, of -log p(target), or of what the
/// adapter's TokenLoss has in its place: loss_s = z_s, scale = 1 / their weight. Evaluations are of
/// -log p.
class CrossEntropyObjective : public Objective {
  public:
    bool needs_first_pass() const override { return false; }
    void scales(const ObjectiveSamples& of, double denominator,
                std::span<float> scales) const override;
    void losses(const ObjectiveSamples& of, std::span<double> losses) const override;
};

}  // namespace loratrain
