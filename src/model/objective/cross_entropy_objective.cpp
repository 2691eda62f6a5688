#include "model/objective/cross_entropy_objective.h"

#include <algorithm>

namespace loratrain {

void CrossEntropyObjective::scales(const ObjectiveSamples& /*of*/, double denominator,
                                   std::span<float> scales) const {
    const double scale = denominator > 0.0 ? 1.0 / denominator : 0.0;
    std::fill(scales.begin(), scales.end(), static_cast<float>(scale));
}

void CrossEntropyObjective::losses(const ObjectiveSamples& of, std::span<double> losses) const {
    std::copy(of.nll.begin(), of.nll.end(), losses.begin());
}

}  // namespace loratrain
