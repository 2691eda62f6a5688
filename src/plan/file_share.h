#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// A file of so many samples, of which an epoch has `weight` times as many, rounded to whole groups
/// of `group_samples`, one at least.
FileShare file_share(std::int64_t samples, double weight, std::int32_t group_samples);

/// Of files that follow each other in a dataset that which has the sample. `counts`: samples of
/// each.
std::size_t file_of(std::span<const std::int64_t> counts, std::int64_t sample);

/// Samples of each file of an adapter's dataset: to train on, or to evaluate on. Empty of one file.
std::vector<std::int64_t> samples_of_files(const AdapterPlan& plan, bool evaluation);

}  // namespace loratrain
