#include "train/token_sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"

namespace loratrain {

namespace {

/// Index of the weight in which the walk reaches `aim`; the last one that is not 0 where rounding
/// leaves it short.
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

double Draw::uniform(std::uint32_t position) const {
    const auto words = philox4x32({position, member, prompt, step}, key);
    const std::uint64_t bits = (std::uint64_t{words[0]} << 32U | words[1]) >> 11U;
    return static_cast<double>(bits) * 0x1p-53;
}

DrawnToken draw_token(std::span<const float> logits, const Draw& draw, double uniform) {
    const double most = *std::max_element(logits.begin(), logits.end());
    double all = 0.0;
    std::vector<double> weights(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const double below = logits[i] - most;
        const double weight = std::exp(below);
        all += weight;
        weights[i] = draw.temperature == 1.0 ? weight : std::exp(below / draw.temperature);
    }
    if (!std::isfinite(all)) return {std::numeric_limits<float>::quiet_NaN(), 0};
    std::size_t token = 0;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (draw.top_p < 1.0) {
        std::vector<std::size_t> order(weights.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
        std::vector<double> kept;
        double mass = 0.0;
        for (std::size_t i = 0; i < order.size() && mass < draw.top_p * sum; ++i) {
            kept.push_back(weights[order[i]]);
            mass += kept.back();
        }
        token = order[reached(kept, uniform * mass)];
    } else {
        token = reached(weights, uniform * sum);
    }
    const double logprob = logits[token] - most - std::log(all);
    return {static_cast<float>(logprob), static_cast<std::int32_t>(token)};
}

}  // namespace loratrain
