#pragma once

#include <string>
#include <vector>

#include "io/run_files/trace_file.h"
#include "plan/predict/simulate.h"

namespace loratrain {

/// What a simulation of all the plan's replicas found, as the spans that a run would trace.
std::vector<TraceSpan> trace_of(const Job& job, const Plan& plan, const Timeline& timeline);

/// In the order of the job.
std::vector<std::string> adapter_names(const Job& job);

}  // namespace loratrain
