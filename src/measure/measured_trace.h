#pragma once

#include <optional>

#include "comm/mpi_session.h"
#include "config/job.h"
#include "measure/trace_recorder.h"
#include "plan/plan.h"

namespace loratrain {

/// What the ranks' recorders know together: trace.json, and costs seen in training.

/// Gathers the spans of all ranks; the root writes them to <run.dir>/trace.json. A write that fails
/// is a warning. Collective.
void write_trace(const MpiSession& mpi, const Job& job, const Plan& plan, TraceRecorder& recorder);

/// plan.costs refined by the observations of all ranks; none if there are no observations or
/// several replicas. Collective.
std::optional<CostModel> gather_refined_costs(const MpiSession& mpi, const Plan& plan,
                                              TraceRecorder& recorder);

}  // namespace loratrain
