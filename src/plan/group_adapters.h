#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace loratrain {

/// Distributes adapters over `groups` groups (1 <= groups <= adapters, none empty) so that their
/// sums of `tokens_per_step` are about equal: largest first into the lightest group (LPT).
/// Returns the group of each adapter; groups are numbered by their first adapter.
std::vector<std::int32_t> group_adapters(std::span<const double> tokens_per_step,
                                         std::int32_t groups);

}  // namespace loratrain
