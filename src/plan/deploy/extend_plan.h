#pragma once

#include <span>
#include <string>

#include "plan/plan.h"

namespace loratrain {

/// Adds to the plan the adapters at the end of `job` that it does not have, while the run goes on.
/// What stages have allocated (microbatch_tokens, columns, capacity) stays. `datasets`: per
/// DatasetId of `job`.
///
/// Throws InputError with every problem, placed at `source`, and leaves the plan unchanged:
/// - a rank above Plan::saved_columns or a matrix's side;
/// - samples longer than microbatch_tokens;
/// - data without samples or targets;
/// - an adapter that would not fit into memory even alone;
/// - more than adapter_capacity adapters.
void extend_plan(Plan& plan, const Job& job, std::span<const DatasetInfo> datasets,
                 const std::string& source);

}  // namespace loratrain
