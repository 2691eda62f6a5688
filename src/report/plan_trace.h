#pragma once

#include <string>
#include <vector>

#include "io/run_files/trace_file.h"
#include "plan/predict/simulate.h"

namespace loratrain {

/// A simulated timeline as a trace.

/// Spans of a trace for a simulated timeline of all the plan's replicas.
std::vector<TraceSpan> trace_of(const Job& job, const Plan& plan, const Timeline& timeline);

/// Names of the job's adapters, in its order.
std::vector<std::string> adapter_names(const Job& job);

}  // namespace loratrain
