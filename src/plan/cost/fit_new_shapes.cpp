#include "plan/cost/fit_new_shapes.h"

#include <algorithm>
#include <vector>

#include "plan/cost/fit_costs.h"

namespace loratrain {

namespace {

constexpr std::size_t terms = 3;  // each, per_row and first

double seconds_of_a_graph(std::span<const NewShapeObservation> observations, double prior) {
    double seconds = 0.0;
    std::int64_t graphs = 0;
    for (const NewShapeObservation& observation : observations) {
        if (observation.nth > 0) continue;
        graphs += observation.graphs;
        if (observation.graphs > 0) seconds += std::max(0.0, observation.seconds);
    }
    return graphs > 0 ? seconds / static_cast<double>(graphs) : prior;
}

}  // namespace

NewShapeCosts fit_new_shapes(std::span<const NewShapeObservation> observations,
                             const NewShapeCosts& prior) {
    NewShapeCosts costs = prior;
    costs.new_attention = seconds_of_a_graph(observations, prior.new_attention);
    std::vector<CostObservation> of_rows;
    for (const NewShapeObservation& observation : observations) {
        const double graphs = costs.new_attention * static_cast<double>(observation.graphs);
        if (observation.nth == 0 || observation.seconds <= graphs) continue;
        of_rows.push_back({observation.rows, 1.0 / static_cast<double>(observation.nth),
                           observation.seconds - graphs});
    }
    if (of_rows.size() < terms) return costs;
    const auto line = fit_cost_line(of_rows);
    if (!line) return costs;
    costs.new_rows.each = line->fixed;
    costs.new_rows.per_row = line->per_token;
    costs.new_rows.first = line->per_square;
    return costs;
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
