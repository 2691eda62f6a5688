#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain JOB.yaml --dry-run [--verbose] [--compare] [--ranks N[,N...]] [--device NAME] [--out
/// DIR]`: plans the job for the ranks and devices at hand, or for the named ones. Collective; with
/// --device it needs neither GPU nor mpirun.
///
/// | option | what is printed |
/// |---|---|
/// | none | four lines (plan/text/dry_run_text.h), and warnings |
/// | --verbose | also datasets, plan, memory, predicted speed and idle time |
/// | --compare | also other policies, deployments and ways to train; takes many times as long |
/// | --compare of a sweep | also other ways to share out trials, and what leaves ranks less idle |
/// | --ranks 1,2,4 | only a table of what each number of ranks would take |
///
/// Costs: without --device those that earlier runs with as many ranks on this host measured, if any
/// are kept; otherwise the built-in ones.
///
/// Files: with --device or --out, timeline.svg, trace.json and, with --compare of a sweep,
/// sweep.svg are written into --out or <run.dir>/dry_run. No other file is written, and no file of
/// a run is overwritten.
///
/// Throws InputError if
/// - the job does not fit; if a change of the job file is found that makes it fit, the four lines
///   describe that change first;
/// - --device names no known device;
/// - --out is a run directory, or the preview directory of one.
ExitCode preview(const CommandLine& command_line, const MpiSession& mpi, const Job& job);

}  // namespace loratrain
