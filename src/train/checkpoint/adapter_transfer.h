#pragma once

#include <functional>
#include <span>
#include <vector>

#include "comm/collective.h"
#include "model/stage.h"

namespace loratrain {

/// An adapter's tensors of one kind from all stages of the first replica, whole, on the root in the
/// order of the stages; empty elsewhere. Error when ranks that have the same part of a tensor
/// differ in it: lanes of a stage in its values, those of several replicas in its checksum.
/// Collective over the world.
std::vector<NamedTensor> gather_adapter(const MpiSession& mpi, const Job& job, const Plan& plan,
                                        AdapterBank& bank, AdapterId adapter,
                                        AdapterBank::Part part);

/// The adapter's tensors from what each rank has, as gather_adapter gives them; `values_of` is
/// asked once per rank of the plan, and what it gives stays until it is asked again.
std::vector<NamedTensor> join_values(
    const Job& job, const Plan& plan, AdapterId adapter, AdapterBank::Part part,
    const std::function<std::span<const float>(std::int32_t rank)>& values_of);

}  // namespace loratrain
