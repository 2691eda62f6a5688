#include "model/objective/objectives.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace loratrain {

namespace {

/// Of one kind of samples: [pairs, columns] of length 1, and what their lengths were.
struct Directions {
    std::vector<double> values;
    std::vector<double> lengths;
};

/// Of the samples `side`, side + 2, ...; a row of zeros stays one.
Directions directions_of(std::span<const float> hidden, std::size_t columns, std::size_t side) {
    Directions of;
    for (std::size_t row = side * columns; row < hidden.size(); row += 2 * columns) {
        double squares = 0.0;
        for (const float value : hidden.subspan(row, columns)) {
            squares += double{value} * double{value};
        }
        const double length = std::max(std::sqrt(squares), 1e-30);
        of.lengths.push_back(length);
        for (const float value : hidden.subspan(row, columns)) of.values.push_back(value / length);
    }
    return of;
}

/// S.
std::vector<double> similarities(const Directions& u, const Directions& v, std::size_t columns,
                                 double temperature) {
    const std::size_t pairs = u.lengths.size();
    std::vector<double> all(pairs * pairs);
    for (std::size_t i = 0; i < pairs; ++i) {
        const auto* row = u.values.data() + i * columns;
        for (std::size_t j = 0; j < pairs; ++j) {
            all[i * pairs + j] =
                std::inner_product(row, row + columns, v.values.data() + j * columns, 0.0) /
                temperature;
        }
    }
    return all;
}

/// Adds softmax - onehot of every row (of every column) of S, times `share`, to `slopes`; returns
/// the sum of -log softmax of the diagonal.
double add_cross_entropy(const std::vector<double>& s, std::size_t pairs, bool of_columns,
                         double share, std::vector<double>& slopes) {
    double losses = 0.0;
    for (std::size_t i = 0; i < pairs; ++i) {
        const auto at = [&](std::size_t j) { return of_columns ? j * pairs + i : i * pairs + j; };
        double most = s[at(0)];
        for (std::size_t j = 1; j < pairs; ++j) most = std::max(most, s[at(j)]);
        double sum = 0.0;
        for (std::size_t j = 0; j < pairs; ++j) sum += std::exp(s[at(j)] - most);
        losses += most + std::log(sum) - s[at(i)];
        for (std::size_t j = 0; j < pairs; ++j) {
            const double own = j == i ? 1.0 : 0.0;
            slopes[at(j)] += share * (std::exp(s[at(j)] - most) / sum - own);
        }
    }
    return losses;
}

/// Gradient in the rows behind `own`, from that in their directions' products with `other`:
/// slope(i, j) of own i and other j.
template <class Slope>
void add_gradient(const Directions& own, const Directions& other, std::size_t columns,
                  std::size_t side, const Slope& slope, std::vector<float>& gradient) {
    const std::size_t pairs = own.lengths.size();
    std::vector<double> sum(columns);
    for (std::size_t i = 0; i < pairs; ++i) {
        std::fill(sum.begin(), sum.end(), 0.0);
        for (std::size_t j = 0; j < pairs; ++j) {
            const auto* row = other.values.data() + j * columns;
            for (std::size_t c = 0; c < columns; ++c) sum[c] += slope(i, j) * row[c];
        }
        const auto* direction = own.values.data() + i * columns;
        const double along = std::inner_product(sum.begin(), sum.end(), direction, 0.0);
        float* out = gradient.data() + (2 * i + side) * columns;
        for (std::size_t c = 0; c < columns; ++c) {
            out[c] = static_cast<float>((sum[c] - along * direction[c]) / own.lengths[i]);
        }
    }
}

}  // namespace

HiddenLoss CitObjective::hidden_loss(const ObjectiveSamples& of, double denominator) const {
    const std::size_t pairs = of.samples.size() / 2;
    LORATRAIN_CHECK(pairs > 0 && of.hidden.size() % (2 * pairs) == 0, of.hidden.size(),
                    " values of ", of.samples.size(), " samples of pairs");
    HiddenLoss result;
    result.gradient.assign(of.hidden.size(), 0.0F);
    if (denominator == 0.0) return result;
    const std::size_t columns = of.hidden.size() / (2 * pairs);
    const Directions u = directions_of(of.hidden, columns, 0);
    const Directions v = directions_of(of.hidden, columns, 1);
    const std::vector<double> s = similarities(u, v, columns, of.loss.temperature);
    const double share = 1.0 / (2.0 * static_cast<double>(pairs));
    std::vector<double> slopes(s.size(), 0.0);
    result.compared = share * (add_cross_entropy(s, pairs, false, share, slopes) +
                               add_cross_entropy(s, pairs, true, share, slopes));
    const double generation = std::accumulate(of.nll.begin(), of.nll.end(), 0.0) / denominator;
    const double weight = generation < of.loss.lambda * result.compared
                              ? generation / result.compared
                              : of.loss.lambda;
    result.value = weight * result.compared * denominator;
    for (double& slope : slopes) slope *= weight / of.loss.temperature;
    add_gradient(
        u, v, columns, 0, [&](std::size_t i, std::size_t j) { return slopes[i * pairs + j]; },
        result.gradient);
    add_gradient(
        v, u, columns, 1, [&](std::size_t i, std::size_t j) { return slopes[j * pairs + i]; },
        result.gradient);
    return result;
}

}  // namespace loratrain
