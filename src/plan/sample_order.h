#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace loratrain {

/// Order in which an epoch visits a dataset's samples: a Fisher-Yates permutation drawn from
/// (seed, dataset name, epoch), or file order when `shuffle` is false.
std::vector<std::int32_t> epoch_order(std::uint64_t seed, std::string_view dataset,
                                      std::int32_t epoch, std::int64_t samples, bool shuffle);

}  // namespace loratrain
