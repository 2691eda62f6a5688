#pragma once

#include <vector>

#include "comm/collective.h"
#include "model/stage.h"

namespace loratrain {

/// An adapter's tensors of one kind from all stages, whole, on the root in the order of the stages;
/// empty elsewhere. Error when lanes of a stage that have the same part of a tensor differ in it.
/// Collective over the world.
std::vector<NamedTensor> gather_adapter(const MpiSession& mpi, const Job& job, const Plan& plan,
                                        AdapterBank& bank, AdapterId adapter,
                                        AdapterBank::Part part);

}  // namespace loratrain
