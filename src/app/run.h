#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// Runs the command. Collective: every rank returns the same code, or every rank throws the same
/// error (so that the caller prints it once).
ExitCode run(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
