#pragma once

#include <optional>

#include "comm/mpi_session.h"
#include "config/command_line.h"
#include "config/job.h"
#include "plan/deploy/make_plan.h"
#include "session/job_inputs.h"

namespace loratrain {

/// Settles what a start of a run needs before its session: the job, and how ranks train.

/// Reads the job file with its overrides and, unless the run starts over, the inbox files that the
/// run accepted before. InputError with every problem, on all ranks. Collective.
Job read_job_of_run(const CommandLine& command_line, const MpiSession& mpi);

/// What settle_run_way() has made on the root, for Session::open().
struct BegunSession {
    std::optional<JobInputs> inputs;    ///< the job's files, if they had to be opened
    std::optional<PlannedJob> planned;  ///< the plan with built-in costs, if a deployment was found
};

/// Settles the deployment and the assignment of adapters if the job leaves them open
/// (ParallelJob::deployment_open). A run that continues keeps those of its resolved.yaml as far as
/// they fit the ranks; a new run gets usual_way.h. The root has the result; other ranks know its
/// kind. Collective.
BegunSession settle_run_way(const CommandLine& command_line, const MpiSession& mpi, Job& job);

}  // namespace loratrain
