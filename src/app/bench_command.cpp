#include "app/bench_command.h"

namespace loratrain {

ExitCode bench_command(const CommandLine& /*command_line*/, const MpiSession& /*mpi*/) {
    return ExitCode::error;
}

}  // namespace loratrain
