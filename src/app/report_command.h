#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain status RUN_DIR`: how a run is doing, from its heartbeat. Needs no mpirun. With
/// --follow until it has ended: drawn anew in place on a terminal, else printed at every change.
ExitCode status_command(const CommandLine& command_line, const MpiSession& mpi);

/// `loratrain report RUN_DIR... [--out FILE]`: writes the page of report/report_page.h, of several
/// runs that of report/comparison_page.h. Likewise.
ExitCode report_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
