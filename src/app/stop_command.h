#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"
#include "io/run_files/status_file.h"

namespace loratrain {

/// The command `loratrain stop`.

/// Checks that the run has this adapter and that the adapter is unfinished. Throws InputError
/// otherwise; for an unknown adapter the message names the nearest adapter, or all.
void check_can_stop(const std::string& run_dir, const RunStatus& status,
                    const std::string& adapter);

/// `loratrain stop RUN_DIR ADAPTER`: asks the run through its inbox to end the adapter. Returns as
/// soon as the request is written.
ExitCode stop_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
