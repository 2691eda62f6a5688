#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/pack/pack_block.h"

namespace loratrain {

/// How much of a job's beginning is looked at.
struct StartLimits {
    std::int32_t rounds = 32;
    std::size_t samples = 16384;  ///< the round that reaches them is the last
};

/// The first rounds of a job in which `adapters` train; of a batch at most the first
/// samples / adapters groups. Shorter ones end earlier, as their steps do.
std::vector<Round> rounds_at_start(const Job& job, const Plan& plan,
                                   std::span<const DatasetInfo> datasets,
                                   std::vector<AdapterId> adapters, const StartLimits& limits);

}  // namespace loratrain
