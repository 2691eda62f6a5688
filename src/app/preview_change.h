#pragma once

#include <optional>

#include "app/preview_plan.h"
#include "plan/text/dry_run_text.h"

namespace loratrain {

/// A change of the job file, and the job with it.
struct ProposedChange {
    JobChange change;
    PlannedPreview preview;
};

/// What the planner would take for the keys that the job sets itself and that change how fast it
/// trains, never what it learns: parallel.deployment and pipeline_stages (on GPUs, unless the job
/// has workers), microbatch_tokens, recompute, model.residency (on GPUs) and schedule.policy.
/// `own`: the job as it is; null = it does not fit. None where the planner takes the same, does not
/// find what fits, or gains less than usual_gain or ten seconds.
std::optional<ProposedChange> find_change(const CommandLine& command_line, const MpiSession& mpi,
                                          const Job& job, const JobInputs& inputs,
                                          const Cluster& cluster, const PlannedPreview* own);

}  // namespace loratrain
