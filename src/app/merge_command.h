#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain merge ADAPTER_DIR OUT_DIR --base base.h5`: writes a Hugging Face folder whose weights
/// contain the adapter (io/adapters/merge_adapter.h). Needs no mpirun.
ExitCode merge_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
