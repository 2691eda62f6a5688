#include "model/objective/objective.h"

#include <algorithm>

#include "model/objective/objectives.h"
#include "model/objective/rollout_objective.h"

namespace loratrain {

RewardSums::Values RewardSums::values() const {
    return {chosen,         rejected,         accuracies, logps_chosen, logps_rejected,
            chosen_samples, rejected_samples, kl,         kl_groups,    compared,
            ratios,         largest_ratio,    clipped,    tokens,       entropies};
}

RewardSums RewardSums::of(const Values& values) {
    const auto& [chosen, rejected, accuracies, logps_chosen, logps_rejected, chosen_samples,
                 rejected_samples, kl, kl_groups, compared, ratios, largest_ratio, clipped, tokens,
                 entropies] = values;
    return {chosen,         rejected,         accuracies, logps_chosen, logps_rejected,
            chosen_samples, rejected_samples, kl,         kl_groups,    compared,
            ratios,         largest_ratio,    clipped,    tokens,       entropies};
}

void RewardSums::add(const RewardSums& other) {
    const double largest = std::max(largest_ratio, other.largest_ratio);
    Values sums = values();
    const Values more = other.values();
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    *this = of(sums);
    largest_ratio = largest;
}

RewardMeans means_of(const RewardSums& sums) {
    const auto mean = [](double sum, double count) {
        return count > 0 ? sum / count : std::nan("");
    };
    return {mean(sums.chosen, sums.chosen_samples),
            mean(sums.rejected, sums.rejected_samples),
            mean(sums.accuracies, sums.chosen_samples),
            mean(sums.logps_chosen, sums.chosen_samples),
            mean(sums.logps_rejected, sums.rejected_samples),
            mean(sums.kl, sums.kl_groups),
            sums.compared,
            mean(sums.ratios, sums.tokens),
            sums.largest_ratio,
            mean(sums.clipped, sums.tokens),
            mean(sums.entropies, sums.tokens)};
}

void CrossEntropyObjective::scales(const ObjectiveSamples& /*of*/, double denominator,
                                   std::span<float> scales) const {
    const double scale = denominator > 0.0 ? 1.0 / denominator : 0.0;
    std::fill(scales.begin(), scales.end(), static_cast<float>(scale));
}

void CrossEntropyObjective::losses(const ObjectiveSamples& of, std::span<double> losses) const {
    std::copy(of.nll.begin(), of.nll.end(), losses.begin());
}

const Objective& objective_of(const AdapterJob& adapter) {
    static const CrossEntropyObjective cross_entropy;
    static const DpoObjective dpo;
    static const CpoObjective cpo;
    static const OrpoObjective orpo;
    static const KtoObjective kto;
    static const CitObjective cit;
    static const RolloutObjective rollouts;
    switch (adapter.loss.loss) {
        case Loss::sft:
            return cross_entropy;
        case Loss::dpo:
            return dpo;
        case Loss::cpo:
        case Loss::simpo:
            return cpo;
        case Loss::orpo:
            return orpo;
        case Loss::kto:
            return kto;
        case Loss::cit:
            return cit;
        case Loss::importance_sampling:
        case Loss::ppo:
        case Loss::cispo:
        case Loss::dro:
        case Loss::grpo:
            return rollouts;
    }
    return cross_entropy;
}

}  // namespace loratrain
