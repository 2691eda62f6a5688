#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain import-hf HF_DIR OUT.h5`: converts a Hugging Face folder to a weights file. Rank 0
/// works, the other ranks wait.
ExitCode import_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
