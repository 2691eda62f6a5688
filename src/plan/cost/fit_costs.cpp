#include "plan/cost/fit_costs.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace loratrain {

namespace {

constexpr std::size_t unknowns = cost_coefficients;
constexpr double smallest_pivot = 1e-9;  // of a column's own square: below, it follows from others
constexpr double better = 1e-9;          // a larger set of coefficients has to gain this

using Vector = std::array<double, unknowns>;
using Matrix = std::array<Vector, unknowns>;

Vector to_vector(const CostLine& line) {
    return {line.fixed, line.per_token, line.per_square, line.per_segment};
}

CostLine to_line(const Vector& x) {
    return {x[0], x[1], x[2], x[3]};
}

double dot(const Vector& a, const Vector& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < unknowns; ++i) sum += a[i] * b[i];
    return sum;
}

Vector multiply(const Matrix& m, const Vector& x) {
    Vector product{};
    for (std::size_t i = 0; i < unknowns; ++i) product[i] = dot(m[i], x);
    return product;
}

/// Solution on the coefficients in the bits of `set` by elimination; none when they depend on each
/// other. The matrix has a unit diagonal.
std::optional<Vector> solve(Matrix m, Vector b, unsigned set) {
    for (std::size_t i = 0; i < unknowns; ++i) {
        if ((set >> i & 1U) == 0) continue;
        if (m[i][i] < smallest_pivot) return std::nullopt;
        for (std::size_t row = 0; row < unknowns; ++row) {
            if (row == i || (set >> row & 1U) == 0) continue;
            const double factor = m[row][i] / m[i][i];
            for (std::size_t column = 0; column < unknowns; ++column) {
                m[row][column] -= factor * m[i][column];
            }
            b[row] -= factor * b[i];
        }
    }
    Vector x{};
    for (std::size_t i = 0; i < unknowns; ++i) {
        if ((set >> i & 1U) != 0) x[i] = b[i] / m[i][i];
    }
    return x;
}

/// Smallest x'Mx - 2 b'x over x >= 0.
Vector solve_non_negative(Matrix m, Vector b) {
    Vector scale{};
    for (std::size_t i = 0; i < unknowns; ++i) scale[i] = m[i][i] > 0 ? std::sqrt(m[i][i]) : 0.0;
    for (std::size_t i = 0; i < unknowns; ++i) {
        b[i] = scale[i] > 0 ? b[i] / scale[i] : 0.0;
        for (std::size_t j = 0; j < unknowns; ++j) {
            m[i][j] = scale[i] > 0 && scale[j] > 0 ? m[i][j] / (scale[i] * scale[j]) : 0.0;
        }
    }
    const double size = dot(b, b);
    Vector best{};
    double least = 0.0;
    // Single coefficients come before pairs, and so on: per token first, per segment last.
    for (const unsigned set : {2U, 1U, 4U, 8U, 3U, 6U, 5U, 10U, 9U, 12U, 7U, 11U, 14U, 13U, 15U}) {
        const auto x = solve(m, b, set);
        if (!x || *std::min_element(x->begin(), x->end()) < 0) continue;
        const double value = dot(*x, multiply(m, *x)) - 2.0 * dot(b, *x);
        if (value >= least - better * size) continue;
        least = value;
        best = *x;
    }
    for (std::size_t i = 0; i < unknowns; ++i) best[i] = scale[i] > 0 ? best[i] / scale[i] : 0.0;
    return best;
}

}  // namespace

void CostSums::add(const CostObservation& observation, double reference) {
    const double weight = 1.0 / (reference * reference);
    const Vector row{1.0, observation.rows, observation.squares, observation.segments};
    for (std::size_t i = 0; i < unknowns; ++i) {
        for (std::size_t j = 0; j < unknowns; ++j) products[i][j] += weight * row[i] * row[j];
        results[i] += weight * row[i] * observation.seconds;
    }
    count += 1.0;
}

void CostSums::add(const CostSums& other) {
    for (std::size_t i = 0; i < unknowns; ++i) {
        for (std::size_t j = 0; j < unknowns; ++j) products[i][j] += other.products[i][j];
        results[i] += other.results[i];
    }
    count += other.count;
}

std::optional<CostLine> fit_cost_line(std::span<const CostObservation> observations) {
    CostSums against_observed;
    for (const CostObservation& o : observations) {
        if (o.seconds > 0) against_observed.add(o, o.seconds);
    }
    if (against_observed.count == 0) return std::nullopt;
    const CostLine first =
        to_line(solve_non_negative(against_observed.products, against_observed.results));
    // Errors relative to what was observed favour the small ones of scattered observations.
    CostSums against_line;
    for (const CostObservation& o : observations) {
        const double line = first.seconds(o.rows, o.squares, o.segments);
        if (o.seconds > 0) against_line.add(o, line > 0 ? line : o.seconds);
    }
    return to_line(solve_non_negative(against_line.products, against_line.results));
}

void CostFit::add(const CostObservation& observation) {
    const double reference =
        prior_.seconds(observation.rows, observation.squares, observation.segments);
    if (!(observation.seconds > 0)) return;
    if (forgetting_ < 1.0) {
        for (Vector& row : sums_.products) {
            for (double& value : row) value *= forgetting_;
        }
        for (double& value : sums_.results) value *= forgetting_;
        sums_.count *= forgetting_;
    }
    sums_.add(observation, reference > 0 ? reference : observation.seconds);
}

CostLine CostFit::refined() const {
    if (sums_.count < prior_count_) return prior_;
    const Vector prior = to_vector(prior_);
    const double square = dot(prior, multiply(sums_.products, prior));
    if (!(square > 0)) return to_line(solve_non_negative(sums_.products, sums_.results));
    const double scale = dot(prior, sums_.results) / square;
    Matrix products = sums_.products;
    Vector results = sums_.results;
    for (std::size_t i = 0; i < unknowns; ++i) {
        const double pull = prior_count_ / sums_.count * sums_.products[i][i];
        products[i][i] += pull;
        results[i] += pull * scale * prior[i];
    }
    return to_line(solve_non_negative(products, results));
}

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
