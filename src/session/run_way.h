#pragma once

#include <optional>

#include "comm/mpi_session.h"
#include "config/command_line.h"
#include "config/job.h"
#include "plan/deploy/make_plan.h"
#include "session/job_inputs.h"

namespace loratrain {

/// The job file with its overrides and, unless the run starts over, what the run has accepted
/// through its inbox before this start. InputError with every problem on all ranks. Collective.
Job read_job_of_run(const CommandLine& command_line, const MpiSession& mpi);

/// What the root has of a session before it begins, for Session::open().
struct BegunSession {
    std::optional<JobInputs> inputs;    ///< the job's files, where they had to be opened
    std::optional<PlannedJob> planned;  ///< by built-in costs, of a new run whose way was searched
};

/// Settles what the job leaves open of its deployment and of who trains where
/// (ParallelJob::deployment_open): a run that goes on from a checkpoint keeps what its
/// resolved.yaml says, as far as that still fits the ranks; a new one gets usual_way.h. What is
/// found is known on the root; other ranks learn the kind. Collective.
BegunSession settle_run_way(const CommandLine& command_line, const MpiSession& mpi, Job& job);

}  // namespace loratrain
