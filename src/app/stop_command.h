#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"
#include "io/run_files/status_file.h"

namespace loratrain {

/// Throws InputError unless the run has this adapter (else the nearest or all are named) and it is
/// unfinished.
void check_can_stop(const std::string& run_dir, const RunStatus& status,
                    const std::string& adapter);

/// `loratrain stop`: asks the run through its inbox to end the adapter. Returns when that is asked.
ExitCode stop_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
