#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"
#include "io/run_files/status_file.h"

namespace loratrain {

/// The commands, of which run() chooses one; bench has a room of its own.

/// `loratrain import-hf HF_DIR OUT.h5`: converts a Hugging Face folder to a weights file. Rank 0
/// works, the other ranks wait.
ExitCode import_command(const CommandLine& command_line, const MpiSession& mpi);

/// `loratrain check-export DIR --base base.h5`: says which programs load the adapter, and why the
/// others do not (io/adapters/loader_rules.h). Needs no mpirun.
ExitCode check_export_command(const CommandLine& command_line, const MpiSession& mpi);

/// `loratrain merge ADAPTER_DIR OUT_DIR --base base.h5`: writes a Hugging Face folder whose weights
/// contain the adapter (io/adapters/merge_adapter.h). Needs no mpirun.
ExitCode merge_command(const CommandLine& command_line, const MpiSession& mpi);

/// `loratrain status RUN_DIR`: prints how a run is doing, from its heartbeat. With --follow it
/// continues until the run has ended: on a terminal the text is redrawn in place, otherwise it is
/// printed at every change. Needs no mpirun.
ExitCode status_command(const CommandLine& command_line, const MpiSession& mpi);

/// `loratrain report RUN_DIR... [--out FILE]`: writes the page of one run (report/report_page.h),
/// or of several runs (report/report_page.h). Needs no mpirun.
ExitCode report_command(const CommandLine& command_line, const MpiSession& mpi);

/// `loratrain selftest`: shows that this installation computes what it should, on the CPU and, if
/// there is one, on a GPU.
/// - Operators are compared with plain loops in fp64.
/// - A tiny model is imported, and two adapters train on it as in any job. The result is compared
///   with a training in fp64 (selftest/reference_training.h).
/// - The adapters are exported, and a stopped and resumed run gives the same bits.
///
/// Works in its own folder below $TMPDIR. If a check fails, the folder stays and the result is
/// ExitCode::error. Runs on one rank: InputError if a launcher started more.
ExitCode selftest_command(const MpiSession& mpi);

/// Checks that the run has this adapter and that the adapter is unfinished. Throws InputError
/// otherwise; for an unknown adapter the message names the nearest adapter, or all.
void check_can_stop(const std::string& run_dir, const RunStatus& status,
                    const std::string& adapter);

/// `loratrain stop RUN_DIR ADAPTER`: asks the run through its inbox to end the adapter. Returns as
/// soon as the request is written.
ExitCode stop_command(const CommandLine& command_line, const MpiSession& mpi);

/// `loratrain JOB.yaml`: reads, plans, trains and exports (src/README.md "From main to a kernel").
/// With --dry-run it stops after printing the plan. Collective.
ExitCode train_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
