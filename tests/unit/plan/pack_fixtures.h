#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/pack/pack_microbatches.h"

namespace loratrain::plan_test {

/// Rounds of random global batches and rules for a small model; depends on `seed` alone.
struct PackCase {
    PackRules rules;
    std::vector<Round> rounds;
};

/// Stages 1-16, adapters 1-64, lengths of 1 token to the capacity, batch sizes 1-64; `samples`
/// bounds the whole block.
PackCase random_pack_case(std::uint64_t seed, std::int64_t samples);

/// The case with all samples in groups of two, for which microbatches are twice as large.
PackCase in_pairs(PackCase test);

/// Rules of `stages` stages of a small model with `layers` layers each.
PackRules small_rules(std::int32_t stages, std::int64_t capacity, std::int32_t layers = 2);

/// "a@step index*tokens ...|..." of every microbatch.
std::vector<std::string> packing_text(std::span<const Microbatch> microbatches);

}  // namespace loratrain::plan_test
