#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain JOB.yaml --dry-run [--verbose] [--compare] [--ranks N[,N...]] [--device NAME]
/// [--out DIR]`: plans for the ranks and devices at hand or the named ones.
///
/// | option | what is printed |
/// |---|---|
/// | none | four lines (plan/text/dry_run_text.h), and warnings |
/// | --verbose | behind them datasets, plan, memory, predicted speed and idle time |
/// | --compare | also other policies, deployments, ways to train and, of a sweep, to share out
/// trials, and what leaves ranks less idle; takes many times as long | | --ranks 1,2,4 | a table of
/// what each number of ranks would take, and no more |
///
/// Without --device the costs are those that runs of so many ranks on this host have measured,
/// where any are kept; else built-in ones. With --device or --out it writes timeline.svg,
/// trace.json and, with --compare of a sweep, sweep.svg into --out or <run.dir>/dry_run; nothing
/// else is written, and nothing of a run is overwritten. Throws InputError where the job does not
/// fit (behind the four lines of a change with which it does, if one is found), --device names none
/// that is known, or --out is a run directory or the preview in one. Collective; with --device it
/// needs neither GPU nor mpirun.
ExitCode preview(const CommandLine& command_line, const MpiSession& mpi, const Job& job);

}  // namespace loratrain
