#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// Runs the command of the command line, under a watch that begins before MPI.

/// Starts the watch over the time before ranks hear of each other (watch/solo_watch.h); the first
/// part of that time is the start of MPI.
void watch_start(int argc, const char* const* argv);

/// Runs the command of the command line. Collective: every rank returns the same code, or every
/// rank throws the same error, so that the caller prints it once.
ExitCode run(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
