#include "base/token_choice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace loratrain {

namespace {

/// Sets the weights of tokens that top_p leaves out to 0. Returns the sum of the others.
double keep_most_likely(std::vector<double>& weights, double top_p, double sum) {
    std::vector<double> sorted = weights;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    std::size_t kept = 0;
    double mass = 0.0;
    while (kept < sorted.size() && mass < top_p * sum) mass += sorted[kept++];
    const double least = sorted[kept - 1];
    const auto first_equal =
        std::lower_bound(sorted.begin(), sorted.end(), least, std::greater<>()) - sorted.begin();
    std::size_t equal_ones = kept - static_cast<std::size_t>(first_equal);
    for (double& weight : weights) {
        if (weight > least) continue;
        if (weight == least && equal_ones > 0) {
            --equal_ones;
        } else {
            weight = 0.0;
        }
    }
    return mass;
}

/// Index of the weight at which the sum exceeds `aim`; the last one that is not 0 where rounding
/// leaves the sum short.
std::size_t reached(std::span<const double> weights, double aim) {
    double sum = 0.0;
    std::size_t last = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weights[i] == 0.0) continue;
        sum += weights[i];
        last = i;
        if (sum > aim) break;
    }
    return last;
}

}  // namespace

ChosenToken choose_token(std::span<const float> logits, const TokenDraw& draw) {
    const auto largest = std::max_element(logits.begin(), logits.end());
    if (draw.temperature == 0.0) {
        return {*largest, 0.0F, static_cast<std::int32_t>(largest - logits.begin())};
    }
    const double most = *largest;
    double all = 0.0;
    std::vector<double> weights(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const double below = logits[i] - most;
        const double weight = std::exp(below);
        all += weight;
        weights[i] = draw.temperature == 1.0 ? weight : std::exp(below / draw.temperature);
    }
    if (!std::isfinite(all)) return {*largest, std::numeric_limits<float>::quiet_NaN(), 0};
    double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (draw.top_p < 1.0) sum = keep_most_likely(weights, draw.top_p, sum);
    const std::size_t token = reached(weights, draw.uniform * sum);
    const double logprob = logits[token] - most - std::log(all);
    return {logits[token], static_cast<float>(logprob), static_cast<std::int32_t>(token)};
}

}  // namespace loratrain
