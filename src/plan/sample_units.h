#pragma once

#include "plan/plan.h"

namespace loratrain {

/// What people count of a dataset with groups of this size (DataKind): "samples", "pairs", or of
/// examples with labels "examples".
const char* unit_word(std::int32_t group_samples);

/// How many of them so many samples are: a pair has two, an example with a label has a KL sample.
std::int64_t units_of(std::int64_t samples, std::int32_t group_samples);

}  // namespace loratrain
