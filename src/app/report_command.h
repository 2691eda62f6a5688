#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// The commands `loratrain status` and `loratrain report`.

/// `loratrain status RUN_DIR`: prints how a run is doing, from its heartbeat. With --follow it
/// continues until the run has ended: on a terminal the text is redrawn in place, otherwise it is
/// printed at every change. Needs no mpirun.
ExitCode status_command(const CommandLine& command_line, const MpiSession& mpi);

/// `loratrain report RUN_DIR... [--out FILE]`: writes the page of one run (report/report_page.h),
/// or of several runs (report/comparison_page.h). Needs no mpirun.
ExitCode report_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
