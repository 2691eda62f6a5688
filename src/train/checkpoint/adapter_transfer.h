#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/stage.h"
#include "plan/plan.h"

namespace loratrain {

/// Values that each rank of a plan has of an adapter, in the order of its bank; asked once per rank
/// at a time, and what it gives stays until it is asked again.
using ValuesOfRanks = std::function<std::span<const float>(std::int32_t rank)>;

/// An adapter's tensors of one part, whole, in the order of the stages, from what each rank of the
/// first replica has. Error when lanes of a stage that have the same part of a tensor differ in it.
std::vector<NamedTensor> join_values(const Job& job, const Plan& plan, AdapterId adapter,
                                     AdapterBank::Part part, const ValuesOfRanks& values_of);

/// Error when ranks of several replicas, or stages that share a layer, differ in parameters that
/// they all have. `values_of`: the parameters of all ranks, which stay.
void check_copies(const Job& job, const Plan& plan, AdapterId adapter,
                  const ValuesOfRanks& values_of);

}  // namespace loratrain
