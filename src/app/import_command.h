#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain import-hf HF_DIR OUT.h5`: rank 0 works, the others wait.
ExitCode import_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
