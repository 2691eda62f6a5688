#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// Order in which an epoch visits a dataset's samples, or groups of them: a Fisher-Yates
/// permutation drawn from (seed, dataset name, epoch), or file order when `shuffle` is false.
std::vector<std::int32_t> epoch_order(std::uint64_t seed, std::string_view dataset,
                                      std::int32_t epoch, std::int64_t samples, bool shuffle);

/// The same of files that follow each other: of `files`, in groups, an epoch has so many as taken.
/// Whole multiples of a file are all of it. The rest goes on where the epoch before left off, in an
/// endless row of permutations of the file, drawn likewise from its number and how many there were
/// before; so over epochs all of a file come alike. What an epoch has is then permuted.
std::vector<std::int32_t> mixed_order(std::uint64_t seed, std::string_view dataset,
                                      std::int32_t epoch, std::span<const FileShare> files,
                                      bool shuffle);

using SampleOrder = std::shared_ptr<const std::vector<std::int32_t>>;

/// The epoch orders of a job's datasets, each made once for all adapters that hold it at the same
/// time: those with the same seed, as is usual, visit a dataset in the same order. Of one thread.
class SampleOrders {
  public:
    /// epoch_order or mixed_order of the groups of dataset `id`, of which `plan` is.
    SampleOrder get(std::uint64_t seed, DatasetId id, const DatasetJob& dataset, std::int32_t epoch,
                    const AdapterPlan& plan);

  private:
    std::map<std::tuple<std::uint64_t, DatasetId, std::int32_t, std::int64_t>,
             std::weak_ptr<SampleOrder::element_type>>
        held_;
};

}  // namespace loratrain
