#include "model/objective/objectives.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace loratrain {

namespace {

/// Of a sample without targets log p is 0.
double targets_of(const ObjectiveSamples& of, std::size_t s) {
    return std::max(1, of.samples[s].targets);
}

/// A loss of a margin of rewards, and its slope.
struct MarginLoss {
    double value = 0.0;
    double slope = 0.0;
};

MarginLoss sigmoid_loss(const LossJob& loss, double h) {
    const double reward = loss.beta_or_usual() * h;
    const double wrong = loss.label_smoothing;
    return {-(1.0 - wrong) * log_sigmoid(reward) - wrong * log_sigmoid(-reward),
            loss.beta_or_usual() * (wrong * sigmoid(reward) - (1.0 - wrong) * sigmoid(-reward))};
}

MarginLoss margin_loss(const LossJob& loss, double h) {
    switch (loss.type) {
        case LossType::sigmoid:
            return sigmoid_loss(loss, h);
        case LossType::hinge:
            return {std::max(0.0, 1.0 - loss.beta_or_usual() * h),
                    loss.beta_or_usual() * h < 1.0 ? -loss.beta_or_usual() : 0.0};
        case LossType::ipo: {
            const double excess = h - 1.0 / (2.0 * loss.beta_or_usual());
            return {excess * excess, 2.0 * excess};
        }
        case LossType::nll:
        case LossType::dft:
            break;  // of sft
    }
    return {};
}

}  // namespace

void PairObjective::scales(const ObjectiveSamples& of, double denominator,
                           std::span<float> scales) const {
    LORATRAIN_CHECK(scales.size() % 2 == 0, scales.size(), " samples of pairs");
    std::fill(scales.begin(), scales.end(), 0.0F);
    if (denominator == 0.0) return;
    for (std::size_t s = 0; s < scales.size(); s += 2) {
        const Both slopes = pair_loss(of, s).slopes;
        scales[s] = static_cast<float>((of.nll_share - slopes.chosen) / denominator);
        scales[s + 1] = static_cast<float>(-slopes.rejected / denominator);
    }
}

void PairObjective::losses(const ObjectiveSamples& of, std::span<double> losses) const {
    std::fill(losses.begin(), losses.end(), 0.0);
    for (std::size_t s = 0; s < losses.size(); s += 2) {
        losses[s] = pair_loss(of, s).value + of.nll_share * of.nll[s];
    }
}

RewardSums PairObjective::rewards(const ObjectiveSamples& of) const {
    RewardSums sums;
    for (std::size_t s = 0; s < of.samples.size(); s += 2) {
        const PairLoss pair = pair_loss(of, s);
        const auto& [chosen, rejected] = pair.rewards;
        sums.add({chosen, rejected, chosen > rejected ? 1.0 : 0.0, pair.logps.chosen,
                  pair.logps.rejected, 1.0, 1.0});
    }
    return sums;
}

PairObjective::PairLoss DpoObjective::pair_loss(const ObjectiveSamples& of,
                                                std::size_t first) const {
    const bool means = of.loss.type == LossType::ipo;
    const Both counts{means ? targets_of(of, first) : 1.0, means ? targets_of(of, first + 1) : 1.0};
    const Both gains{of.reference[first] - of.nll[first],
                     of.reference[first + 1] - of.nll[first + 1]};
    const auto [value, slope] =
        margin_loss(of.loss, gains.chosen / counts.chosen - gains.rejected / counts.rejected);
    return {value,
            {slope / counts.chosen, -slope / counts.rejected},
            {of.loss.beta_or_usual() * gains.chosen, of.loss.beta_or_usual() * gains.rejected},
            {-of.nll[first], -of.nll[first + 1]}};
}

PairObjective::PairLoss CpoObjective::pair_loss(const ObjectiveSamples& of,
                                                std::size_t first) const {
    const bool simpo = of.loss.loss == Loss::simpo;
    const bool means = simpo || of.loss.type == LossType::ipo;
    const Both counts{means ? targets_of(of, first) : 1.0, means ? targets_of(of, first + 1) : 1.0};
    const Both logps{-of.nll[first] / counts.chosen, -of.nll[first + 1] / counts.rejected};
    const double h = logps.chosen - logps.rejected;
    const auto [value, slope] =
        simpo ? sigmoid_loss(of.loss, h - of.loss.simpo_gamma / of.loss.beta_or_usual())
              : margin_loss(of.loss, h);
    return {value,
            {slope / counts.chosen, -slope / counts.rejected},
            {of.loss.beta_or_usual() * logps.chosen, of.loss.beta_or_usual() * logps.rejected},
            logps};
}

PairObjective::PairLoss OrpoObjective::pair_loss(const ObjectiveSamples& of,
                                                 std::size_t first) const {
    const Both counts{targets_of(of, first), targets_of(of, first + 1)};
    const Both logps{-of.nll[first] / counts.chosen, -of.nll[first + 1] / counts.rejected};
    // A probability of 1, of a sample without targets say, would have odds without bound.
    constexpr double least = 1e-12;
    const Both rest{std::max(least, -std::expm1(logps.chosen)),
                    std::max(least, -std::expm1(logps.rejected))};
    const double log_odds =
        logps.chosen - logps.rejected - (std::log(rest.chosen) - std::log(rest.rejected));
    const double slope = -of.loss.beta_or_usual() * sigmoid(-log_odds);
    return {-of.loss.beta_or_usual() * log_sigmoid(log_odds),
            {slope / rest.chosen / counts.chosen, -slope / rest.rejected / counts.rejected},
            {of.loss.beta_or_usual() * logps.chosen, of.loss.beta_or_usual() * logps.rejected},
            logps};
}

}  // namespace loratrain
