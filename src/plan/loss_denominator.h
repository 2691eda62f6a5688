#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace loratrain {

/// Whether a sample, by its place in the dataset, is the chosen one of a pair.
inline bool is_chosen(const LossJob& loss, std::int64_t sample) {
    return loss.is_of_pairs() && sample % 2 == 0;
}

/// What the summed losses of a batch are divided by (BatchPlan::denominator), from its counts.
/// Cross-entropy is a mean over target tokens, a loss of pairs over pairs.
inline std::int64_t loss_denominator(const LossJob& loss, const BatchPlan& batch) {
    return loss.is_of_pairs() ? batch.samples / 2 : batch.targets;
}

}  // namespace loratrain
