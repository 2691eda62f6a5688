#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/stage.h"
#include "plan/plan.h"

namespace loratrain {

/// Joins an adapter's tensors from the values of all ranks.

/// Gives a rank's values of an adapter, in the order of its bank.
using ValuesOfRanks = std::function<std::span<const float>(std::int32_t rank)>;

/// The adapter's whole tensors of one part, in the order of stages, from the ranks of the first
/// replica, whose values outlive them. Those of several lanes are joined when they are written,
/// with an Error if lanes that hold the same part differ.
std::vector<TensorSource> tensors_of(const Job& job, const Plan& plan, AdapterId adapter,
                                     AdapterBank::Part part, const ValuesOfRanks& values_of);
/// tensors_of(), joined now.
std::vector<NamedTensor> join_values(const Job& job, const Plan& plan, AdapterId adapter,
                                     AdapterBank::Part part, const ValuesOfRanks& values_of);

/// Error if replicas, or stages that share a layer, differ in parameters that both hold.
/// `values_of`: parameters of all ranks.
void check_copies(const Job& job, const Plan& plan, AdapterId adapter,
                  const ValuesOfRanks& values_of);

}  // namespace loratrain
