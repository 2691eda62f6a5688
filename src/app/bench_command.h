#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain bench`: one training step of a synthetic model, timed.
ExitCode bench_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
