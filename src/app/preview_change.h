#pragma once

#include <optional>

#include "app/preview_plan.h"
#include "plan/text/dry_run_text.h"

namespace loratrain {

/// The line `change` of a dry run: a change of the job file that makes it faster.

/// A change of the job file, and the plan and prediction of the changed job.
struct ProposedChange {
    JobChange change;
    PlannedPreview preview;
};

/// Looks for a faster choice of the keys that the job sets itself and that change speed only, never
/// what is learned: parallel.deployment and pipeline_stages (on GPUs, unless the job has workers),
/// microbatch_tokens, recompute, model.residency (on GPUs) and schedule.policy. `own`: the job as
/// it is; null if it does not fit. Returns none if the planner chooses the same values, finds none
/// that fit, or gains less than usual_gain or ten seconds.
std::optional<ProposedChange> find_change(const CommandLine& command_line, const MpiSession& mpi,
                                          const Job& job, const JobInputs& inputs,
                                          const Cluster& cluster, const PlannedPreview* own);

}  // namespace loratrain
