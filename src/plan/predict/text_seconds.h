#pragma once

#include <cstdint>
#include <span>

#include "plan/plan.h"

namespace loratrain {

/// How long adapters with rewards write (train/services/rollouts.h).
struct TextSeconds {
    std::int64_t texts = 0;  ///< of a step of each of them
    /// A guess from costs of training: forwards of the prompts, and one for each of max_new_tokens.
    /// Of several replicas the slowest one's. Less where texts end before. Drawing tokens and the
    /// reward program are not in it.
    double seconds = 0.0;
};
TextSeconds text_seconds(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets);

}  // namespace loratrain
