#pragma once

#include <span>
#include <string>

#include "plan/plan.h"

namespace loratrain {

/// Takes the adapters at the end of `job` that the plan does not know into it while the run goes
/// on: what stages have allocated (microbatch_tokens, columns, capacity) stays as it is. Throws
/// InputError with every problem, placed at `source`, and leaves the plan as it was: a rank above
/// Plan::saved_columns or a matrix's side, samples longer than microbatch_tokens, data without
/// samples or targets, an adapter that would not fit into memory even alone, more than
/// adapter_capacity adapters. `datasets`: per DatasetId of `job`.
void extend_plan(Plan& plan, const Job& job, std::span<const DatasetInfo> datasets,
                 const std::string& source);

}  // namespace loratrain
