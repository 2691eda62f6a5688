#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Tokens of the longest sample that is profiled on a processor, which takes long for it.
inline constexpr std::int64_t usual_longest_sample = 4096;

/// Tokens of the longest sample that a profile has, where a microbatch holds it: on a GPU the
/// plan's, as what attention takes of it cannot be told from shorter ones.
std::int64_t longest_profiled(const Plan& plan);

/// So many tokens in samples as long as `longest`, half as long and so on down to `shortest`, and
/// again.
std::vector<std::int64_t> sample_lengths(std::int64_t tokens, std::int64_t longest,
                                         std::int64_t shortest);

/// Samples of those lengths, shared out among the adapters 0, 1, ...; its columns are the caller's.
Microbatch microbatch_of(const std::vector<std::int64_t>& lengths, std::size_t adapters);

}  // namespace loratrain
