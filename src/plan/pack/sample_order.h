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

/// Order of a dataset's samples, or groups, in an epoch: a Fisher-Yates permutation drawn from
/// (seed, dataset name, epoch); file order if `shuffle` is false.
std::vector<std::int32_t> epoch_order(std::uint64_t seed, std::string_view dataset,
                                      std::int32_t epoch, std::int64_t samples, bool shuffle);

/// Order of an epoch over several files that follow each other; FileShare counts groups. An epoch
/// has FileShare::taken groups of each file: whole multiples of the file, and a rest. The rest
/// continues where the epoch before has ended, in an endless row of permutations of the file, drawn
/// from its number and the number of permutations before; so all groups of a file are equally
/// frequent over epochs. The whole epoch is then permuted.
std::vector<std::int32_t> mixed_order(std::uint64_t seed, std::string_view dataset,
                                      std::int32_t epoch, std::span<const FileShare> files,
                                      bool shuffle);

using SampleOrder = std::shared_ptr<const std::vector<std::int32_t>>;

/// Epoch orders of a job's datasets. Adapters with the same seed visit a dataset in the same order,
/// so each order is made once for all that hold it at a time. Not thread-safe.
class SampleOrders {
  public:
    /// epoch_order or mixed_order of the groups of dataset `id`, to which `plan` belongs.
    SampleOrder get(std::uint64_t seed, DatasetId id, const DatasetJob& dataset, std::int32_t epoch,
                    const AdapterPlan& plan);

  private:
    std::map<std::tuple<std::uint64_t, DatasetId, std::int32_t, std::int64_t>,
             std::weak_ptr<SampleOrder::element_type>>
        held_;
};

}  // namespace loratrain
