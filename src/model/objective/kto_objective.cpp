#include "model/objective/objectives.h"

#include <algorithm>

#include "base/error.h"

namespace loratrain {

namespace {

double gain(const ObjectiveSamples& of, std::size_t s) {
    return of.reference[s] - of.nll[s];
}

/// Of the group of k examples and k KL samples that begins at `first`.
double kl_of_group(const ObjectiveSamples& of, std::size_t first, std::size_t k) {
    double sum = 0.0;
    for (std::size_t s = first + k; s < first + 2 * k; ++s) sum += gain(of, s);
    return std::max(0.0, sum / static_cast<double>(k));
}

/// Calls use(example, KL of its group) for every example, and group(KL) for every group.
template <class Use, class Group>
void for_each_example(const ObjectiveSamples& of, const Use& use, const Group& group) {
    const auto size = static_cast<std::size_t>(of.group_samples);
    LORATRAIN_CHECK(size >= 4 && size % 2 == 0 && of.samples.size() % size == 0, of.samples.size(),
                    " samples in groups of ", size);
    for (std::size_t first = 0; first < of.samples.size(); first += size) {
        const double kl = kl_of_group(of, first, size / 2);
        group(kl);
        for (std::size_t s = first; s < first + size / 2; ++s) use(s, kl);
    }
}

struct ExampleLoss {
    double value = 0.0;
    double slope = 0.0;  ///< in z
};

ExampleLoss example_loss(const ObjectiveSamples& of, std::size_t s, double kl) {
    const LossJob& loss = of.loss;
    const bool undesirable = of.samples[s].undesirable;
    const double weight = undesirable ? loss.undesirable_weight : loss.desirable_weight;
    const double sign = undesirable ? -1.0 : 1.0;
    const double x = loss.beta_or_usual() * sign * (gain(of, s) - kl);
    return {weight * sigmoid(-x), weight * loss.beta_or_usual() * sign * sigmoid(x) * sigmoid(-x)};
}

}  // namespace

void KtoObjective::scales(const ObjectiveSamples& of, double denominator,
                          std::span<float> scales) const {
    std::fill(scales.begin(), scales.end(), 0.0F);
    if (denominator == 0.0) return;
    const auto set = [&](std::size_t s, double kl) {
        scales[s] = static_cast<float>(example_loss(of, s, kl).slope / denominator);
    };
    for_each_example(of, set, [](double) {});
}

void KtoObjective::losses(const ObjectiveSamples& of, std::span<double> losses) const {
    std::fill(losses.begin(), losses.end(), 0.0);
    const auto set = [&](std::size_t s, double kl) { losses[s] = example_loss(of, s, kl).value; };
    for_each_example(of, set, [](double) {});
}

RewardSums KtoObjective::rewards(const ObjectiveSamples& of) const {
    RewardSums sums;
    const auto add = [&](std::size_t s, double) {
        const bool undesirable = of.samples[s].undesirable;
        (undesirable ? sums.rejected : sums.chosen) += of.loss.beta_or_usual() * gain(of, s);
        (undesirable ? sums.logps_rejected : sums.logps_chosen) -= of.nll[s];
        (undesirable ? sums.rejected_samples : sums.chosen_samples) += 1.0;
    };
    for_each_example(of, add, [&](double kl) {
        sums.kl += kl;
        sums.kl_groups += 1.0;
    });
    return sums;
}

}  // namespace loratrain
