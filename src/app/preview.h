#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain JOB.yaml --dry-run [--ranks N[,N...]] [--device NAME] [--compare] [--out DIR]`: plans
/// for the ranks and devices at hand or the named ones and prints plan, memory, predicted speed and
/// idle time. Several numbers of ranks (--ranks 1,2,4) make a table of what each would
/// take, and no more. --compare, which takes many times as long, adds what other policies,
/// deployments, ways to train and, of a sweep, to share out trials would take, and what leaves
/// ranks less idle. Without --device the costs are those that runs of so many ranks on this host
/// have measured, where any are kept; else built-in ones. With --device or --out it writes
/// timeline.svg, trace.json and, with --compare of a sweep, sweep.svg into --out or
/// <run.dir>/dry_run; nothing else is written, and nothing of a run is overwritten. Throws
/// InputError where the job does not fit, --device names none that is known, or --out is a run
/// directory or the preview in one. Collective; with --device it needs neither GPU nor mpirun.
ExitCode preview(const CommandLine& command_line, const MpiSession& mpi, const Job& job);

}  // namespace loratrain
