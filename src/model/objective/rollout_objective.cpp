#include "model/objective/rollout_objective.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace loratrain {

namespace {

/// Calls use(sample, row, weight of the token's loss in the sample's) for every row.
template <class Use>
void for_each_row(const ObjectiveSamples& of, const Use& use) {
    const bool means = of.loss.aggregation == LossAggregation::sequence;
    std::size_t row = 0;
    for (std::size_t s = 0; s < of.samples.size(); ++s) {
        const std::size_t end = row + static_cast<std::size_t>(of.samples[s].targets);
        const double weight = means ? 1.0 / of.samples[s].targets : 1.0;
        for (; row < end; ++row) use(s, row, weight);
    }
    LORATRAIN_CHECK(row == of.rows.nll.size(), row, " targets in samples, but ", of.rows.nll.size(),
                    " rows");
}

}  // namespace

RolloutObjective::TokenTerm RolloutObjective::token_term(const LossJob& loss,
                                                         const RolloutRows& rows, std::size_t row) {
    const double logp = -rows.nll[row];
    const auto advantage = static_cast<double>(rows.advantages[row]);
    const double log_ratio = logp - static_cast<double>(rows.logprobs[row]);
    const double beta = loss.beta_or_usual();
    TokenTerm term;
    term.ratio = std::exp(log_ratio);
    const double clip = std::clamp(term.ratio, loss.clip_low, loss.clip_high);
    if (loss.loss == Loss::cispo) {
        term.clipped = clip != term.ratio;
        term.value = -clip * advantage * logp;
        term.slope = clip * advantage;
    } else if (loss.loss == Loss::dro) {
        term.value = -(logp * advantage - 0.5 * beta * log_ratio * log_ratio);
        term.slope = advantage - beta * log_ratio;
    } else {
        term.clipped = loss.has_clip() && clip * advantage < term.ratio * advantage;
        term.value = -(term.clipped ? clip : term.ratio) * advantage;
        term.slope = term.clipped ? 0.0 : term.ratio * advantage;
    }
    if (rows.reference.empty()) return term;
    const double d = rows.nll[row] - rows.reference[row];
    term.kl = std::expm1(d) - d;
    term.value += beta * term.kl;
    term.slope += beta * std::expm1(d);
    return term;
}

void RolloutObjective::row_scales(const ObjectiveSamples& of, double denominator,
                                  std::span<float> scales) const {
    std::fill(scales.begin(), scales.end(), 0.0F);
    if (denominator == 0.0) return;
    for_each_row(of, [&](std::size_t, std::size_t row, double weight) {
        const double slope = token_term(of.loss, of.rows, row).slope;
        scales[row] = static_cast<float>(weight * slope / denominator);
    });
}

void RolloutObjective::losses(const ObjectiveSamples& of, std::span<double> losses) const {
    const bool evaluation = of.rows.advantages.empty();
    if (evaluation) return CrossEntropyObjective::losses(of, losses);
    std::fill(losses.begin(), losses.end(), 0.0);
    for_each_row(of, [&](std::size_t s, std::size_t row, double weight) {
        losses[s] += weight * token_term(of.loss, of.rows, row).value;
    });
}

RewardSums RolloutObjective::rewards(const ObjectiveSamples& of) const {
    RewardSums sums;
    const bool evaluation = of.rows.advantages.empty();
    if (evaluation) return sums;
    for_each_row(of, [&](std::size_t, std::size_t row, double) {
        const TokenTerm term = token_term(of.loss, of.rows, row);
        sums.ratios += term.ratio;
        sums.largest_ratio = std::max(sums.largest_ratio, term.ratio);
        sums.clipped += term.clipped ? 1.0 : 0.0;
        sums.kl += term.kl;
        sums.tokens += 1.0;
        sums.entropies += of.rows.entropies[row];
    });
    sums.kl_groups = sums.tokens;
    return sums;
}

}  // namespace loratrain
