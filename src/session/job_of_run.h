#pragma once

#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// The job file with its overrides and, unless the run starts over, what the run has accepted
/// through its inbox before this start. InputError with every problem on all ranks. Collective.
Job read_job_of_run(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
