#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain bench`: trains a synthetic model and reports its speed and memory.
///   window        `steps` optimizer steps after a warm-up, planned as one window, so that
///                 the pipeline fills and drains once.
///                 On one rank also the fastest step, from as many windows
///                 of one step and from the mean of the window
///   LoRA off      the same microbatches without adapters
///   GEMM library  its rate alone on the same shapes (fastest of five)
///   profile       another window with every operator timed (backend/op_timer.h), which does not
///                 affect the other figures
/// Rates count the work of plan/cost/cost_model.h. Collective.
ExitCode bench_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
