#pragma once

#include <optional>

#include "comm/mpi_session.h"
#include "config/job.h"
#include "measure/trace_recorder.h"
#include "plan/plan.h"

namespace loratrain {

/// Gathers all ranks' spans so far; the root writes them to <run.dir>/trace.json. That it cannot be
/// written is a warning. Collective.
void write_trace(const MpiSession& mpi, const Job& job, const Plan& plan, TraceRecorder& recorder);

/// plan.costs refined by all ranks' observations; none without any. Collective.
std::optional<CostModel> gather_refined_costs(const MpiSession& mpi, const Plan& plan,
                                              TraceRecorder& recorder);

}  // namespace loratrain
