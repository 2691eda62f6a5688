#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace loratrain {

/// What the summed losses of a batch are divided by (BatchPlan::denominator), from its counts.
/// Cross-entropy is a mean over target tokens.
inline std::int64_t loss_denominator(const BatchPlan& batch) {
    return batch.targets;
}

}  // namespace loratrain
