#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain JOB.yaml`: reads, plans, trains and exports (src/README.md "From main to a kernel").
/// With --dry-run it stops after printing the plan. Collective.
ExitCode train_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
