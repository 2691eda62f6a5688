#pragma once

#include "base/error.h"
#include "comm/mpi_session.h"
#include "config/command_line.h"

namespace loratrain {

/// `loratrain bench`: training steps of a synthetic model, the fastest one's time; the same with
/// LoRA off; the rate of the GEMM library alone on the same shapes (fastest of five). Useful work
/// per token: 4 FLOP per weight in a matrix product (forward and input gradient; a frozen base has
/// no weight gradient) and 3 x 2 L Q D s for causal attention over samples of s tokens; LoRA's own
/// work is not counted. Collective.
ExitCode bench_command(const CommandLine& command_line, const MpiSession& mpi);

}  // namespace loratrain
