#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain selftest`: shows that this installation computes what it should, on the CPU and,
/// where there is one, a GPU: operators beside plain loops in fp64; then a tiny model is imported
/// and two adapters train on it as in any job, beside a training in fp64
/// (selftest/reference_training.h), are exported, and stop and resume to the same bits. Works in a
/// folder of its own below $TMPDIR, which stays where a check failed. ExitCode::error then. One
/// rank: InputError under a launcher of more.
ExitCode selftest_command(const MpiSession& mpi);

}  // namespace loratrain
