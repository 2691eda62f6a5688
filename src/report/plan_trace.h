#pragma once

#include <vector>

#include "io/trace_file.h"
#include "plan/simulate.h"

namespace loratrain {

/// What a simulation found, as the spans that a run would trace.
std::vector<TraceSpan> trace_of(const Job& job, const Plan& plan, const Timeline& timeline);

}  // namespace loratrain
