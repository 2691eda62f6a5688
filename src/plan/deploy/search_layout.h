#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/plan_report.h"

namespace loratrain {

/// Compares sizes of microbatches by simulation; first comes the one to take: that of the plan
/// unless another is at least 2% faster. Looked at are eighths of `usual` that are not below
/// `longest` and, where products would run slower than the model says, 2048 tokens on CUDA or 512
/// on the CPU. Smaller microbatches fill and drain the pipeline faster and level its stages better,
/// larger ones have less overhead but leave less memory: as many adapters train at once as fit
/// beside them (with plan.recompute, in admission_order; none = the size is left out). Empty where
/// there is no choice: with one stage, where large ones are the best, or when no size is left.
///
/// Played is a block of the first rounds again and again, by `costs`, with the job's policy and
/// packing (but not MILP); at most 1024 samples for policy balanced, of large batches the first
/// ones. Few packings of each size are compared first, then all of the two sizes that matter. So
/// the work is bounded, and the result depends on the arguments alone. `plan` is complete but for
/// its memory.
std::vector<LayoutTrial> search_layout(const Job& job, const Plan& plan,
                                       std::span<const DatasetInfo> datasets,
                                       const CostModel& costs, std::int64_t usual,
                                       std::int64_t longest);

/// Tokens a second of the plan's first rounds, by the same simulation. `plan` is complete but for
/// its memory.
double played_speed(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                    const CostModel& costs);

/// Between depths that search_depth looks at: of more than 16 stages so many that 16 are.
std::int32_t depths_apart(std::int32_t stages);

/// How many microbatches may be in flight at the first stage: plan.max_in_flight, or the fewest
/// more (at most twice as many, depths_apart) that come within 1% of the fastest by simulation, as
/// far as they fit in memory. What is ready ahead of time fills the pauses that microbatches of
/// unequal cost leave, and steps that wait for each other. Where half of every rank's memory is
/// left, half as many again, and beside other adapters at least twice plan.max_in_flight, on the
/// CPU four times: played are the first rounds, without messages and jitter, and rounds of fewer
/// adapters gain more. `plan` is complete but for its memory.
std::int32_t search_depth(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                          const CostModel& costs);

}  // namespace loratrain
