#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// Watches over what comes before ranks hear of each other (watch/solo_watch.h), MPI's start first.
void watch_start(int argc, const char* const* argv);

/// Runs the command. Collective: every rank returns the same code, or every rank throws the same
/// error (so that the caller prints it once).
ExitCode run(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
