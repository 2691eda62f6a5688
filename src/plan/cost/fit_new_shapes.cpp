#include "plan/cost/fit_new_shapes.h"

#include <algorithm>
#include <vector>

#include "plan/cost/fit_costs.h"

namespace loratrain {

namespace {

constexpr std::size_t terms = 3;  // each, per_row and first

}  // namespace

NewShapeLine fit_new_shapes(std::span<const NewShapeObservation> observations,
                            const NewShapeLine& prior) {
    std::vector<CostObservation> longer;
    for (const auto& [nth, rows, seconds] : observations) {
        if (seconds > 0.0) longer.push_back({rows, 1.0 / static_cast<double>(nth), seconds});
    }
    if (longer.size() < terms) return prior;
    const auto fitted = fit_cost_line(longer);
    if (!fitted) return prior;
    NewShapeLine line = prior;
    line.each = fitted->fixed;
    line.per_row = fitted->per_token;
    line.first = fitted->per_square;
    return line;
}

NewShapeLine fit_new_targets(std::span<const NewTargetsObservation> observations,
                             const NewShapeLine& prior) {
    double first = 0.0;
    double first_shapes = 0.0;
    double later = 0.0;
    double later_shapes = 0.0;
    for (const auto& [shapes, seconds] : observations) {
        if (shapes == 0) continue;
        const bool is_first = first_shapes == 0.0;
        (is_first ? first_shapes : later_shapes) += static_cast<double>(shapes);
        (is_first ? first : later) += std::max(0.0, seconds);
    }
    if (later_shapes == 0.0) return prior;
    NewShapeLine line = prior;
    line.each = later / later_shapes;
    double harmonic = 0.0;
    for (double n = 1.0; n <= first_shapes; ++n) harmonic += 1.0 / n;
    line.first = std::max(0.0, first - first_shapes * line.each) / harmonic;
    line.per_row = 0.0;
    return line;
}

}  // namespace loratrain
