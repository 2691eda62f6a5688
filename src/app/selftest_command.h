#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

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

}  // namespace loratrain
