#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain check-export DIR --base base.h5`: says which programs load the adapter, and why the
/// others do not (io/adapters/loader_rules.h). Needs no mpirun.
ExitCode check_export_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
